"""Long streams: whether later tasks take longer to learn than earlier ones, and how evaluation and memory grow."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from scripts.perf.comparison import Result, Table, Value
from scripts.perf.runs import timed
from seu_bench import hookimpl
from seu_bench.config.run import Request
from seu_bench.results.record_metrics import EVALUATION
from seu_bench.training.stage import StageProgress

CASES: Final[dict[str, dict[str, Any]]] = {
    "naive": {"strategy": "naive"},
    "ewc": {"strategy": "ewc"},
    "replay": {"strategy": "replay"},
    "seu_all_new": {"strategy": "seu", "searcher": "random", "creator": "all_new"},
    "icarl": {"strategy": "icarl"},
    "slda": {"strategy": "slda"},
}
TASKS: Final = (20, 60, 100)
IMAGES: Final = 96
MIB: Final = 2**20


class Cost(NamedTuple):
    """CPU seconds of a task: evaluation, and all else as learning; MiB that the process holds behind it."""

    learning: float
    evaluation: float
    held: float | None


class Meter:
    """A plugin that notes what each task of a run costs."""

    def __init__(self) -> None:
        self.costs: list[Cost] = []
        self._began = self._learned = time.process_time()

    @hookimpl
    def stage_progress(self, progress: StageProgress) -> None:
        """Note where an evaluation begins and ends."""
        if progress.stage != EVALUATION:
            return
        now = time.process_time()
        if not progress.done:
            self._learned = now
            return
        self.costs.append(Cost(self._learned - self._began, now - self._learned, _held()))
        self._began = now


def measure(_: str) -> Result:
    """Four runs of each strategy on streams of each length."""
    values: dict[str, Value] = {}
    rows: list[list[Any]] = []
    for name in CASES:
        of_case = [_row(name, tasks) for tasks in TASKS]
        values |= {name: max(row[4] for row in of_case), f"{name}_evaluation": max(row[5] for row in of_case)}
        rows += of_case
    columns = ("run", "tasks", "earlier half: learning a task s", "later half s", "later / earlier")
    further = ("evaluating a task: later / earlier", "process gains a task MiB", "stored a task MiB")
    settings = {"data": "made-up", "images per task": IMAGES, "benchmark": "pmnist; of icarl split_cifar100_class"}
    return Result(settings, values, (Table("Learning, evaluation and memory", (*columns, *further), rows),))


def _row(name: str, tasks: int) -> list[Any]:
    meters = [Meter() for _ in range(4)]
    records = [timed(_request(CASES[name], tasks), watching=meter).record for meter in meters]
    costs, middle = meters[0].costs, len(meters[0].costs) // 2
    # Of each task the least of four: what else the machine does adds. The first has nothing to start from.
    of_task = [*enumerate(zip(*(meter.costs for meter in meters), strict=True), start=1)]
    learning = [min(it.learning for it in runs) for _, runs in of_task]
    evaluation = [min(it.evaluation for it in runs) / number for number, runs in of_task]
    earlier, later, *shares = (
        statistics.fmean(half) for it in (learning, evaluation) for half in (it[1:middle], it[middle:])
    )
    held, stored = [cost.held for cost in costs], [None if it is None else it / MIB for it in records[0].memory_bytes]
    return [name, len(costs), earlier, later, later / earlier, shares[1] / shares[0], _slope(held), _slope(stored)]


def _slope(mib: Sequence[float | None]) -> float | None:
    """What comes to it with each task of the later half."""
    half = [it for it in mib[len(mib) // 2 :] if it is not None]
    return statistics.linear_regression(range(len(half)), half).slope if len(half) > 1 else None


def _held() -> float | None:
    """MiB of the process that are in memory; ``None`` where the system does not tell."""
    file = Path("/proc/self/statm")
    return int(file.read_text().split()[1]) * resource.getpagesize() / MIB if file.is_file() else None


def _request(case: Mapping[str, Any], tasks: int) -> Request:
    strategy, benchmark, stream = case["strategy"], "pmnist", {"benchmark.stream.tasks": tasks}
    schedule = {"epochs": 6, "batch_size": 64}
    options = {**schedule, "backbone": "conv4", "width": 0.25}  # small, so that training hides nothing of what grows
    if strategy == "seu":
        options = {**schedule, "cells": 3, "channels": 8}
    elif strategy == "slda":
        options = {}
    elif strategy == "icarl":  # whose memory is full after two tasks; 100 classes do not make 60
        benchmark, classes = "split_cifar100_class", 100 // (50 if tasks == 60 else tasks)
        options["memory"], stream = 100, {"benchmark.stream.classes_per_task": classes}
    fields = {"protocol": "paper", "options": options | stream, "limit": IMAGES, "synthetic": True}
    return Request.model_validate({**case, **fields, "benchmark": benchmark})
