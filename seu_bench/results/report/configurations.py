"""Configurations of a group: what was measured over their seeds, and what figures of them rest on."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from seu_bench.results.record import Record
from seu_bench.results.reference_rows import reference_of
from seu_bench.results.scenarios import with_scenario
from seu_bench.results.statistics import FEWEST_PAIRS
from seu_bench.utils.text import printable

Values: TypeAlias = NDArray[np.float64]

#: Colours of Okabe and Ito, "Color Universal Design", 2008, without yellow, which is too faint on white; each with
#: matplotlib's marker and dashes, so that no figure needs its colours.
_STYLES: Final[tuple[tuple[str, str, tuple[float, ...]], ...]] = (
    ("#0072b2", "o", ()),
    ("#d55e00", "s", (5, 1.6)),
    ("#009e73", "^", (1.2, 1.2)),
    ("#cc79a7", "D", (6, 1.5, 1.2, 1.5)),
    ("#e69f00", "v", (3, 1.2, 1, 1.2, 1, 1.2)),
    ("#56b4e9", "P", (8, 2)),
    ("#8a8f95", "*", (1, 2.2)),
    ("#1b1f24", "X", (2.5, 1)),
)
GREY: Final = "#69737d"
#: Begins what is hashed to a strategy's style; this one keeps the colours of figures made before.
_SALT: Final = "102718"


class Style(NamedTuple):
    """Colour, matplotlib's marker, and lengths of dashes and gaps of one configuration or task."""

    color: str
    marker: str
    dashes: tuple[float, ...]


def style(number: int, color: str | None = None) -> Style:
    """Return the style of a thing counted from 0; beyond the eighth, colours come again with other markers."""
    again, first = divmod(number, len(_STYLES))
    return Style(color or _STYLES[first][0], *_STYLES[(number + again) % len(_STYLES)][1:])


def styles_of(strategies: Sequence[str]) -> list[Style]:
    """Choose a style for each configuration, all different.

    The first of a strategy has the style that its name is hashed to, the same in every figure, or the next free one.
    """
    numbers: dict[int, int] = {}
    for place in sorted(range(len(strategies)), key=lambda place: strategies[place] in strategies[:place]):
        own = hashlib.sha256((_SALT + strategies[place]).encode()).digest()[0] % len(_STYLES)
        candidates = itertools.chain(range(own, len(_STYLES)), itertools.count())
        numbers[place] = next(number for number in candidates if number not in numbers.values())
    return [style(numbers[place]) for place in range(len(strategies))]


class SeedSummary(NamedTuple):
    """Mean and standard deviation (n - 1) over seeds; NaN where not measured for every seed, std also for one seed."""

    mean: Values
    std: Values

    def at(self, key: Any) -> SeedSummary:
        """Index both, as NumPy does."""
        return SeedSummary(np.asarray(self.mean[key]), np.asarray(self.std[key]))


def over_seeds(values: Values) -> SeedSummary:
    """Summarise values of shape ``[seeds, ...]``."""
    complete = np.isfinite(values).all(axis=0)
    known = np.where(complete, values, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):  # a stranger's record may hold numbers of any size
        std = known.std(axis=0, ddof=1) if len(values) > 1 else np.full(values.shape[1:], np.nan)
        found = known.mean(axis=0), std
    return SeedSummary(*(np.where(complete & np.isfinite(each), each, np.nan) for each in found))


def text_of(mean: float, std: float = math.nan, decimals: int = 1) -> str:
    """Format a mean and its deviation: ``95.1 ± 0.4``; ``-``: not measured."""
    if not math.isfinite(mean):
        return "-"
    text = f"{round(mean, decimals) + 0.0:,.{decimals}f}"  # adding 0.0 turns -0.0 into 0.0
    return text + (f" ± {std:,.{decimals}f}" if math.isfinite(std) else "")


@dataclass(frozen=True)
class Configuration:
    """A row of a leaderboard with its number and label there, not escaped, and the records behind it, by seed."""

    number: int
    label: str
    runs: tuple[Record, ...]
    style: Style

    @property
    def example(self) -> Record:
        """The run of the lowest seed."""
        return min(self.runs, key=lambda run: run.seed)

    @property
    def reference(self) -> str | None:
        """What it is a reference of; ``None`` for a learner."""
        return reference_of(self.example)

    @property
    def title(self) -> str:
        """Name in a figure."""
        return self.label if self.reference is None else f"reference: {self.label}"

    @property
    def tasks(self) -> int:
        """Tasks of the longest of its runs."""
        return max(max(len(run.task_names), len(run.task_order), len(run.accuracy_matrix)) for run in self.runs)

    def _per_seed(self, rows_of: Callable[[Record], Sequence[Sequence[float | None]]]) -> Values:
        """Matrices of records as ``[seeds, tasks, tasks]``; NaN where nothing was measured."""
        result = np.full((len(self.runs), self.tasks, self.tasks), np.nan)
        for seed, run in enumerate(self.runs):
            for row, values in enumerate(rows_of(run)[: self.tasks]):
                result[seed, row, : len(values)] = np.array(values[: self.tasks], dtype=float)
        return result

    @cached_property
    def matrices(self) -> Values:
        """Accuracy matrices in percent, ``[seeds, tasks, tasks]``; NaN where not measured."""
        found = self._per_seed(lambda run: run.accuracy_matrix)
        return 100 * np.where((found >= 0) & (found <= 1), found, np.nan)

    @cached_property
    def answers(self) -> SeedSummary:
        """Share of task i's test images that were answered with a class of task j, after the last task, in percent."""
        counts = self._per_seed(lambda run: run.task_confusion)
        counts[np.isfinite(counts).any(axis=2)] = np.nan_to_num(counts[np.isfinite(counts).any(axis=2)])
        with np.errstate(invalid="ignore"):
            return over_seeds(100 * counts / counts.sum(axis=2, keepdims=True))

    @cached_property
    def accuracies(self) -> SeedSummary:
        """``R[i][j]`` in percent, ``[tasks, tasks]``."""
        return over_seeds(self.matrices)

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


def basis(configurations: Sequence[Configuration]) -> str:
    """Say in sentences what a figure rests on: benchmark, protocol, scenario, seeds, and whose options were tuned."""
    run = configurations[0].example
    protocol = with_scenario(f"protocol {printable(run.protocol)}", run.scenario)
    seeds = seed_counts([len(each.runs) for each in configurations])
    said = [f"Benchmark {printable(run.benchmark)}, version {run.benchmark_version}, {protocol}, {seeds}"]
    if few := [each.label for each in configurations if len(each.runs) < FEWEST_PAIRS]:
        said.append(f"Fewer than {FEWEST_PAIRS} seeds, too few to tell a difference from chance: {', '.join(few)}")
    tuned = [each.label for each in configurations if all(run.tuned is not None for run in each.runs)]
    said.append(f"Hyper-parameters were tuned for: {', '.join(tuned) or 'none'}")
    return "".join(f" {text}." for text in said)


def seed_counts(counts: Sequence[int]) -> str:
    """``10 seeds each``, or how many configurations have how many: ``10 seeds (6 configurations), 5 seeds (2)``."""
    found = sorted(Counter(counts).items(), reverse=True)
    if len(found) == 1:
        return f"{counts[0]} seed{'s' * (counts[0] != 1)}{' each' * (len(counts) > 1)}"
    return ", ".join(f"{seeds} seeds ({number} configurations)" for seeds, number in found)


def task_name(runs: Sequence[Record], task: int) -> str:
    """``task 0 (classes 4-5)``; the name only where it is the same for all ``runs``, which a shuffled order changes."""
    called = {run.task_names[task] if 0 <= task < len(run.task_names) else "" for run in runs}
    name = printable(called.pop()) if len(called) == 1 else ""
    return f"task {task} ({name})" if name else f"task {task}"
