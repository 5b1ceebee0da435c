"""Cost of checkpoints: seconds and bytes per strategy, as a share of the run that wrote them.

    python scripts/checkpoint_cost.py measure results/published/reliability.json
    python scripts/checkpoint_cost.py page results/published/reliability.json > results/published/reliability.md

``measure`` makes each run twice on split_digits: as it is by default, and with a checkpoint after every epoch. Both
numbers of a share are taken in one process and one run, so that a busy machine slows both.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from seu_bench.config.run import Request
from seu_bench.engine.resolve import resolve
from seu_bench.engine.runner import execute
from seu_bench.plugin.registry import Registry

#: Our own strategies, and two of Avalanche's, whose checkpoints are between tasks.
STRATEGIES: Final = ("naive", "ewc", "pnn", "ltg", "seu", "lwf", "replay")
#: Seconds between two checkpoints, as ``--checkpoint-every``.
POLICIES: Final[dict[str, float | None]] = {"default": None, "every epoch": 0.0}

INTRODUCTION = """\
# Cost of checkpoints

Made by `scripts/checkpoint_cost.py` from [reliability.json](reliability.json). Benchmark split_digits, protocol
{protocol}, seed 0, {device}. *share*: seconds spent in writing checkpoints, of the seconds of the whole run, in one
process. By default a checkpoint is written as often as keeps the share at 2 %; *every epoch* is
`--checkpoint-every 0`. *model*: the finished run's weights. Strategies of Avalanche (lwf, replay) write between tasks
only."""


def measured(strategy: str, protocol: str, every: float | None) -> dict[str, Any]:
    """Measure one run, in a folder of its own that is removed."""
    registry = Registry()
    with tempfile.TemporaryDirectory() as folder:
        request = Request(
            strategy=strategy, protocol=protocol, results=Path(folder), device="cpu", checkpoint_every=every
        )
        outcome = execute(registry, resolve(registry, request))
        model = outcome.path.with_name("model.safetensors")
        return {
            "strategy": strategy,
            "seconds": outcome.record.seconds,
            "checkpoints": outcome.checkpoints,
            "checkpoint_seconds": outcome.checkpoint_seconds,
            "checkpoint_bytes": outcome.checkpoint_bytes,
            "model_bytes": model.stat().st_size,
            "device": outcome.record.environment.device,
        }


def measure(protocol: str) -> dict[str, Any]:
    """Measure all strategies by all policies."""
    rows = [
        {"policy": policy, **measured(strategy, protocol, every)}
        for strategy in STRATEGIES
        for policy, every in POLICIES.items()
    ]
    return {"protocol": protocol, "runs": rows}


def page(document: dict[str, Any]) -> Iterator[str]:
    """Format the measurements as Markdown."""
    runs = document["runs"]
    yield INTRODUCTION.format(protocol=document["protocol"], device=runs[0]["device"])
    yield ""
    yield "| strategy | checkpoints | run s | written | share % | ms each | kB each | model kB |"
    yield "| --- | --- |" + " ---: |" * 6
    for run in runs:
        written, seconds = run["checkpoints"], run["checkpoint_seconds"]
        cells = [
            run["strategy"],
            run["policy"],
            f"{run['seconds']:.1f}",
            str(written),
            f"{100 * seconds / run['seconds']:.2f}",
            f"{1000 * seconds / written:.1f}" if written else "-",
            f"{run['checkpoint_bytes'] / 1000:.0f}" if written else "-",
            f"{run['model_bytes'] / 1000:.0f}",
        ]
        yield "| " + " | ".join(cells) + " |"


def main() -> None:
    """Measure, or make the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["measure", "page"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--protocol", default="quick")
    given = parser.parse_args()
    if given.what == "measure":
        given.file.write_text(json.dumps(measure(given.protocol), indent=1) + "\n")
    else:
        print("\n".join(page(json.loads(given.file.read_text()))))


if __name__ == "__main__":
    main()
