"""What a search takes, as a multiple of the MDL searcher's: ratios measured side by side in one process.

    python scripts/search_speed.py [--protocol quick] [--limit 128] [--rounds 3]

Each round runs every searcher once on the first task of split_digits; printed are the medians over the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from seu_bench.interfaces import SearchTask
from seu_bench.registry import Registry
from seu_bench.resolve import Request, resolve
from seu_bench.search_space import SearchSpace
from seu_bench.sources import DigitsSource
from seu_bench.streams import build_stream

#: A name for each case, the searcher and its options.
CASES = {
    "mdl": ("mdl", {}),
    "darts, order 1": ("darts", {}),
    "darts, order 2": ("darts", {"searcher.order": 2}),
    "blockwise": ("blockwise", {}),
    "zero_cost": ("zero_cost", {}),
    "random": ("random", {}),
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--protocol", default="quick")
    parser.add_argument("--limit", type=int, default=128, help="training images")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    registry = Registry()
    seconds: dict[str, list[float]] = {name: [] for name in CASES}
    passes: dict[str, int] = {}
    for seed in range(asked.rounds):
        for name, (searcher, options) in CASES.items():
            request = Request("seu", "split_digits", searcher, None, asked.protocol, seed, options, asked.limit)
            run = resolve(registry, request)
            stream = build_stream(run.spec.benchmark, lambda _: DigitsSource().load(None), run.limits, seed)
            images, classes = stream.tasks[0].train, stream.plan.classes[0]
            component = run.searcher
            if component is None:
                raise SystemExit("SEU has no searcher")
            task = SearchTask(images, 0, classes, SearchSpace(), run.spec.protocol.search, seed, torch.device("cpu"))
            stage = component.factory.build(component.options, task)
            began = time.perf_counter()
            stage.run()
            seconds[name].append(time.perf_counter() - began)
            passes[name] = stage.image_passes
    reference = statistics.median(seconds["mdl"])
    for name, taken in seconds.items():
        print(f"{name:<16} {statistics.median(taken) / reference:7.2f} times mdl, {passes[name]:>7,} image passes")


if __name__ == "__main__":
    main()
