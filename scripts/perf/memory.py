"""Memory by budgets of the feature cache. Each run is a process of its own, for a process's peak never falls.

``python -m scripts.perf.memory STRATEGY BUDGET SETTINGS`` is such a process; it prints a JSON object.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from scripts.perf.comparison import Result, Table

STRATEGIES = ("pnn", "seu")
MIB = 2**20


def measure(_: str) -> Result:
    """All strategies by all budgets."""
    settings = {
        "limit": 384,
        "width": 0.25,
        "channels": 8,
        "classes_per_task": 25,
    }
    budgets = (0, 8 * MIB, 1024 * MIB)
    rows, within = [], []
    for strategy in STRATEGIES:
        least: float | None = None
        for budget in budgets:
            command = [sys.executable, "-m", "scripts.perf.memory", strategy, str(budget), json.dumps(settings)]
            made = subprocess.run(command, check=False, capture_output=True, text=True)
            if made.returncode:
                raise RuntimeError(f"{strategy} with {budget} bytes failed: {made.stderr.strip().splitlines()[-1:]}")
            found = json.loads(made.stdout.splitlines()[-1])
            kept, held = found["kept"], found["held"]
            least = held if least is None else least
            within.append(kept <= budget)
            rows.append([strategy, budget / MIB, kept / MIB, held / MIB, (held - least) / MIB])
    columns = ("strategy", "budget MiB", "features MiB", "process MiB", "more than without MiB")
    return Result(
        {"benchmark": "split_cifar100", "data": "made-up", **settings},
        {"within_budget": all(within)},
        (Table("At the most", columns, rows),),
    )


def _run(strategy: str, budget: int, settings: Mapping[str, Any]) -> dict[str, int]:
    from scripts.perf.runs import timed
    from seu_bench.config.run import Request

    options: dict[str, Any] = {"epochs": 1, "batch_size": 64}
    options["benchmark.stream.classes_per_task"] = settings["classes_per_task"]
    if strategy == "pnn":
        options["width"] = settings["width"]
    else:
        options |= {"cells": 3, "channels": settings["channels"], "genotype": "darts_v1", "creator.epochs": 1}
    run = timed(
        Request(
            strategy=strategy,
            benchmark="split_cifar100",
            protocol="paper",
            options=options,
            limit=settings["limit"],
            synthetic=True,
        ),
        feature_cache=budget,
    )
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kibibytes on Linux
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return {"kept": int(run.record.metrics["peak_feature_bytes"] or 0), "held": held}


if __name__ == "__main__":
    print(json.dumps(_run(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]))))
