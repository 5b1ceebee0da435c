"""Whether later tasks of a long stream take longer to learn than earlier ones."""

from __future__ import annotations

import statistics
from typing import Any

from scripts.perf.comparison import Result, Table, Value
from scripts.perf.runs import Timed, timed
from seu_bench.config.run import Request
from seu_bench.results.record_metrics import EVALUATION

CASES: dict[str, tuple[str, str | None]] = {
    "naive": ("naive", None),
    "ewc": ("ewc", None),
    "seu_all_new": ("seu", "all_new"),
    "seu_mdl": ("seu", "mdl"),
}


def measure(_: str) -> Result:
    """A run of each strategy."""
    tasks = 20
    limit = 192
    values: dict[str, Value] = {}
    rows = []
    for name, (strategy, creator) in CASES.items():
        run = timed(_request(strategy, creator, tasks, limit))
        seconds = [_learning(run, task) for task in range(tasks)]
        # The first task has nothing to start from: no creation, no penalty.
        middle = tasks // 2
        values[name] = statistics.fmean(seconds[middle:]) / statistics.fmean(seconds[1:middle])
        slope = statistics.linear_regression(range(1, tasks), seconds[1:]).slope
        evaluation = [run.stages()[EVALUATION, task].seconds for task in range(tasks)]
        rows.append([name, seconds[1], seconds[-1], slope / statistics.fmean(seconds[1:]), values[name]])
        rows[-1] += [evaluation[1], evaluation[-1]]
    columns = ("run", "second task s", "last task s", "slope per task / mean", "later / earlier half")
    return Result(
        {"benchmark": "pmnist", "data": "made-up", "tasks": tasks, "images per task": limit},
        values,
        (Table("Learning and evaluation", (*columns, "evaluation after second s", "after last s"), rows),),
    )


def _request(strategy: str, creator: str | None, tasks: int, limit: int) -> Request:
    options: dict[str, Any] = {"epochs": 6, "batch_size": 64, "benchmark.stream.tasks": tasks}
    if strategy == "seu":
        options |= {"cells": 3, "channels": 8, "searcher.cells": 3, "searcher.channels": 4}
        options |= {"searcher.epochs": 4, "searcher.batch_size": 48}
        if creator != "all_new":
            options |= {"creator.epochs": 6, "creator.batch_size": 64}
    else:
        options |= {"width": 0.25}
    return Request(
        strategy=strategy,
        benchmark="pmnist",
        creator=creator,
        protocol="paper",
        options=options,
        limit=limit,
        synthetic=True,
    )


def _learning(run: Timed, task: int) -> float:
    return sum(stage.seconds for (name, at), stage in run.stages().items() if at == task and name != EVALUATION)
