"""Measurements of the runs of one configuration together: means and standard deviations over its seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from seu_bench.results.record import Record
from seu_bench.utils.text import printable

Values: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SeedSummary:
    """Mean and standard deviation (n - 1) over seeds; NaN where not measured for every seed, std also for one seed."""

    mean: Values
    std: Values

    def __getitem__(self, key: Any) -> SeedSummary:
        """Index both, as NumPy does."""
        return SeedSummary(np.asarray(self.mean[key]), np.asarray(self.std[key]))

    @property
    def band(self) -> tuple[Values, Values]:
        """Mean minus and plus the deviation; the mean itself where there is none."""
        half = np.nan_to_num(self.std, nan=0.0)
        return self.mean - half, self.mean + half

    def text(self, unit: str = " %", decimals: int = 1, missing: str = "not measured") -> str:
        """Format a single value: ``95.1 ± 0.4 %``; ``missing`` where it was not measured."""
        mean, std = float(self.mean), float(self.std)
        if not math.isfinite(mean):
            return missing
        text = f"{round(mean, decimals) + 0.0:,.{decimals}f}"  # adding 0.0 turns -0.0 into 0.0
        return text + (f" ± {std:,.{decimals}f}" if math.isfinite(std) else "") + unit

    def cells(self) -> list[str]:
        """Format a vector for a table."""
        return [self[place].text("", missing="-") for place in range(len(self.mean))]


def over_seeds(values: Values) -> SeedSummary:
    """Summarise values of shape ``[seeds, ...]``."""
    nothing = np.full(values.shape[1:], np.nan)
    complete = np.isfinite(values).all(axis=0)
    known = np.where(complete, values, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):  # a stranger's record may hold numbers of any size
        mean = known.mean(axis=0)
        std = known.std(axis=0, ddof=1) if len(values) > 1 else nothing
    return SeedSummary(*(np.where(complete & np.isfinite(found), found, np.nan) for found in (mean, std)))


def matrices(runs: Sequence[Record]) -> Values:
    """Accuracy matrices of runs in percent, ``[seeds, T, T]`` with the largest T; NaN where not measured."""
    tasks = max([number_of_tasks(run) for run in runs], default=0)
    result = np.full((len(runs), tasks, tasks), np.nan)
    for seed, run in enumerate(runs):
        for row, values in enumerate(run.accuracy_matrix):
            result[seed, row, : len(values)] = np.array(values[:tasks], dtype=float)
    return 100 * np.where((result >= 0) & (result <= 1), result, np.nan)


def accuracies(runs: Sequence[Record]) -> SeedSummary:
    """``R[i][j]`` in percent, ``[T, T]``."""
    return over_seeds(matrices(runs))


def original_and_retained(runs: Sequence[Record]) -> tuple[SeedSummary, SeedSummary]:
    """Accuracy on each task right after learning it, and after the last task; percent, ``[T]``."""
    values = matrices(runs)
    return over_seeds(np.diagonal(values, axis1=1, axis2=2)), over_seeds(values[:, -1, :])


def averages(runs: Sequence[Record]) -> SeedSummary:
    """Mean accuracy over the tasks learned so far, after each task; percent, ``[T]``."""
    values = matrices(runs)
    learned = [values[:, row, : row + 1].mean(axis=1) for row in range(values.shape[1])]
    return over_seeds(np.stack(learned, axis=1) if learned else np.empty((len(runs), 0)))


def metric(runs: Sequence[Record], name: str, factor: float = 1.0) -> SeedSummary:
    """A metric of the records times ``factor``, ``[]``. What cannot be, in a stranger's record, was not measured."""
    found = [run.metrics.get(name) for run in runs]
    highest = 1.0 if name in ("acc", "mixed_score") else math.inf
    known = [math.nan if value is None or not 0 <= value <= highest else float(value) * factor for value in found]
    return over_seeds(np.array(known))


def number_of_tasks(run: Record) -> int:
    """Tasks of a run's stream."""
    return max(len(run.task_names), len(run.task_order), len(run.accuracy_matrix))


def task_names(runs: Sequence[Record]) -> list[str]:
    """``task 0 (classes 4-5)``; the name only where it is the same for all ``runs``, which a shuffled order changes."""
    names = []
    for task in range(max([number_of_tasks(run) for run in runs], default=0)):
        called = {run.task_names[task] if task < len(run.task_names) else "" for run in runs}
        name = printable(called.pop()) if len(called) == 1 else ""
        names.append(f"task {task} ({name})" if name else f"task {task}")
    return names
