"""Duration of each search, as a multiple of the MDL searcher's."""

from __future__ import annotations

import statistics
from typing import Any

import torch

from scripts.perf.comparison import Result, Size, Table
from scripts.perf.timing import seconds
from seu_bench.config.run import Request
from seu_bench.data.streams import build_stream
from seu_bench.engine.resolve import resolve
from seu_bench.plugin.registry import Registry
from seu_bench_kit import SearchSpace, SearchTask

#: A name for each case, the searcher and its options.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "mdl": ("mdl", {}),
    "darts, order 1": ("darts", {}),
    "darts, order 2": ("darts", {"searcher.order": 2}),
    "blockwise": ("blockwise", {}),
    "zero_cost": ("zero_cost", {}),
    "random": ("random", {}),
}


def measure(_: str, size: Size) -> Result:
    """Each round runs every searcher once on the first task, with a seed of its own."""
    registry = Registry()
    protocol = "smoke" if size.quick else "quick"
    limit = size.fixed(128, 32)
    taken: dict[str, list[float]] = {name: [] for name in CASES}
    passes: dict[str, int] = {}
    for seed in range(size.count(1, 1)):
        for name, (searcher, options) in CASES.items():
            request = Request(searcher=searcher, protocol=protocol, seed=seed, options=options, limit=limit)
            run = resolve(registry, request)
            stream = build_stream(run.spec.benchmark, run.load, run.limits, seed)
            images, classes = stream.tasks[0].train, stream.plan.classes_per_task[0]
            if run.searcher is None:
                raise RuntimeError("SEU has no searcher")
            task = SearchTask(images, 0, classes, SearchSpace(), run.spec.protocol.search, seed, torch.device("cpu"))
            stage = run.searcher.factory.build(run.searcher.options, task)
            taken[name].append(seconds(stage.run))
            passes[name] = stage.image_passes
    reference = statistics.median(taken["mdl"])
    rows = [[name, statistics.median(spent) / reference, passes[name]] for name, spent in taken.items()]
    return Result(
        {"benchmark": "split_digits", "protocol": protocol, "images": limit, "rounds": len(taken["mdl"])},
        {},
        (Table("Searches", ("searcher", "times mdl", "image passes"), rows, "times mdl"),),
    )
