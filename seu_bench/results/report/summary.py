"""Configurations of a group: what was measured over their seeds, as numbers and in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from seu_bench.results.record import Record
from seu_bench.results.reference_rows import reference_of
from seu_bench.results.report.canvas import Style
from seu_bench.results.report.layout import Layout
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
    def low(self) -> Values:
        """Mean minus the deviation; the mean itself where there is none."""
        return self.mean - np.nan_to_num(self.std, nan=0.0)

    def draw(self, axes: Axes, first: int, alpha: float, **look: Any) -> None:
        """Draw a line of the means at ``first``, ``first + 1``, ..., and a band of one deviation."""
        places = np.arange(first, first + len(self.mean))
        axes.plot(places, self.mean, **look)
        if np.isfinite(self.std).any():
            high = self.mean + np.nan_to_num(self.std, nan=0.0)
            axes.fill_between(places, self.low, high, color=look["color"], alpha=alpha, linewidth=0)

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


@dataclass(frozen=True)
class Configuration:
    """A row of a leaderboard with its number, label and rank there, not escaped, and the records behind it, by seed."""

    number: int
    label: str
    runs: tuple[Record, ...]
    style: Style
    rank: int | None = None

    @property
    def title(self) -> str:
        """Rank and label, or that it is a reference: a label that a figure cuts short is still found in the
        leaderboard."""
        if reference_of(self.example) is not None:
            return f"reference: {self.label}"
        return self.label if self.rank is None else f"{self.rank} {self.label}"

    def named(self, layout: Layout) -> str:
        """Name in a figure: on a page the title, in a paper, where the leaderboard's ranks say nothing, the label."""
        return self.title if layout.width is None or reference_of(self.example) is not None else self.label

    @property
    def example(self) -> Record:
        """The run of the lowest seed, where a figure can show but one."""
        return min(self.runs, key=lambda run: run.seed)

    @property
    def seeds(self) -> str:
        """``3 seeds``."""
        return f"{len(self.runs)} seed{'s' * (len(self.runs) != 1)}"

    @property
    def tasks(self) -> int:
        """Tasks of the longest of its runs."""
        return max(max(len(run.task_names), len(run.task_order), len(run.accuracy_matrix)) for run in self.runs)

    @cached_property
    def matrices(self) -> Values:
        """Accuracy matrices in percent, ``[seeds, tasks, tasks]``; NaN where not measured."""
        result = np.full((len(self.runs), self.tasks, self.tasks), np.nan)
        for seed, run in enumerate(self.runs):
            for row, values in enumerate(run.accuracy_matrix):
                result[seed, row, : len(values)] = np.array(values[: self.tasks], dtype=float)
        return 100 * np.where((result >= 0) & (result <= 1), result, np.nan)

    @cached_property
    def answers(self) -> SeedSummary:
        """Share of task i's test images that were answered with a class of task j, after the last task; percent,
        ``[tasks, tasks]``; NaN where it was not counted."""
        counts = np.full((len(self.runs), self.tasks, self.tasks), np.nan)
        for seed, run in enumerate(self.runs):
            for row, values in enumerate(run.task_confusion[: self.tasks]):
                if values:
                    counts[seed, row] = 0
                    counts[seed, row, : len(values)] = np.array(values[: self.tasks], dtype=float)
        with np.errstate(invalid="ignore"):
            return over_seeds(100 * counts / counts.sum(axis=2, keepdims=True))

    @cached_property
    def accuracies(self) -> SeedSummary:
        """``R[i][j]`` in percent, ``[tasks, tasks]``."""
        return over_seeds(self.matrices)

    @cached_property
    def original(self) -> SeedSummary:
        """Accuracy on each task right after learning it; percent, ``[tasks]``."""
        return over_seeds(np.diagonal(self.matrices, axis1=1, axis2=2))

    @cached_property
    def retained(self) -> SeedSummary:
        """Accuracy on each task after the last one; percent, ``[tasks]``."""
        return over_seeds(self.matrices[:, -1, :])

    @cached_property
    def averages(self) -> SeedSummary:
        """Mean accuracy over the tasks learned so far, after each task; percent, ``[tasks]``."""
        learned = [self.matrices[:, row, : row + 1].mean(axis=1) for row in range(self.tasks)]
        return over_seeds(np.stack(learned, axis=1))

    def metric(self, name: str, factor: float = 1.0) -> SeedSummary:
        """A metric of the records times ``factor``, ``[]``; NaN where it cannot be that, in a stranger's record."""
        values = np.array([run.metrics.get(name) for run in self.runs], dtype=float)
        highest = 1.0 if name in ("acc", "mixed_score") else math.inf
        return over_seeds(np.where((values >= 0) & (values <= highest), values, np.nan) * factor)


class Published(NamedTuple):
    """A result of the paper: accuracy in percent, parameters stored, and how the strategy's own is drawn."""

    label: str
    accuracy: float
    parameters: float
    style: Style


def task_name(runs: Iterable[Record], task: int) -> str:
    """``task 0 (classes 4-5)``; the name only where it is the same for all ``runs``, which a shuffled order changes."""
    called = {run.task_names[task] if 0 <= task < len(run.task_names) else "" for run in runs}
    name = printable(called.pop()) if len(called) == 1 else ""
    return f"task {task} ({name})" if name else f"task {task}"


def sentences(parts: Sequence[str], most: int = 12) -> str:
    """Join parts of an alternative text; of very many, the first ``most`` and how many more."""
    more = [f"{len(parts) - most} more are in the table"] if len(parts) > most else []
    return " ".join(f"{part}." for part in [*parts[:most], *more])


def describe(configurations: Iterable[Configuration], in_words: Callable[[Configuration], str]) -> str:
    """Join an alternative text of each configuration."""
    return sentences([f"{each.title} ({each.seeds}): {in_words(each)}" for each in configurations])
