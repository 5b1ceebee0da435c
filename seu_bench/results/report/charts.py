"""What each figure of the report shows: values, words, and a table, drawn by :mod:`.drawing` and :mod:`.plotting`."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from seu_bench.results.comparison import BenchmarkComparison
from seu_bench.results.labels import with_scenario
from seu_bench.results.metric import UNITS, Metric
from seu_bench.results.names import Installed, display_label
from seu_bench.results.record import Record
from seu_bench.results.record_metrics import METRICS, known_metric
from seu_bench.results.reference_rows import reference_of
from seu_bench.results.statistics import FEWEST_PAIRS
from seu_bench.utils.text import printable

Values: TypeAlias = NDArray[np.float64]
#: How a series is drawn. ``across`` is a line at the final accuracy of a reference, ``step`` a front.
Look: TypeAlias = Literal["line", "point", "across", "step"]
#: Configurations of a diagram of ranks, of which the table has more; letters of the names of a task's classes.
MOST_RANKED, _MOST_LETTERS = 24, 16
#: Metrics of size and cost that accuracy is drawn against, and what they are called.
SIZES: Final = {"memory_bytes": "memory", "params_total": "parameters", "train_flops": "operations"}
_BAND: Final = "Means over seeds with one standard deviation (n - 1); what was not measured is a gap."

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
    """Colour, matplotlib's marker, and lengths of dashes and gaps of one configuration."""

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


def over_seeds(values: Values) -> SeedSummary:
    """Summarise values of shape ``[seeds, ...]``."""
    complete = np.isfinite(values).all(axis=0)
    known = np.where(complete, values, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):  # a stranger's record may hold numbers of any size
        std = known.std(axis=0, ddof=1) if len(values) > 1 else np.full(values.shape[1:], np.nan)
        found = known.mean(axis=0), std
    return SeedSummary(*(np.where(complete & np.isfinite(each), each, np.nan) for each in found))


@dataclass(frozen=True)
class Configuration:
    """A row of a leaderboard with its label there, not escaped, and the records behind it, by seed."""

    label: str
    runs: tuple[Record, ...]
    style: Style

    @property
    def reference(self) -> str | None:
        """What it is a reference of; ``None`` for a learner."""
        return reference_of(self.runs[0])

    @property
    def title(self) -> str:
        """Name in a figure."""
        return self.label if self.reference is None else f"reference: {self.label}"

    @property
    def tasks(self) -> int:
        """Tasks of the longest of its runs."""
        return max(max(len(run.task_names), len(run.task_order), len(run.accuracy_matrix)) for run in self.runs)

    @cached_property
    def matrices(self) -> Values:
        """Accuracy matrices ``R[i][j]`` in percent, ``[seeds, tasks, tasks]``; NaN where not measured."""
        found = np.full((len(self.runs), self.tasks, self.tasks), np.nan)
        for seed, run in enumerate(self.runs):
            for row, values in enumerate(run.accuracy_matrix[: self.tasks]):
                found[seed, row, : len(values)] = np.array(values[: self.tasks], dtype=float)
        return 100 * np.where((found >= 0) & (found <= 1), found, np.nan)

    @cached_property
    def averages(self) -> SeedSummary:
        """Mean accuracy over the tasks learned so far, after each task; percent, ``[tasks]``."""
        learned = [self.matrices[:, row, : row + 1].mean(axis=1) for row in range(self.tasks)]
        return over_seeds(np.stack(learned, axis=1))

    def metric(self, name: str, factor: float = 1.0) -> SeedSummary:
        """Summarise a metric of the records times ``factor``; NaN where it cannot be that, in a stranger's record."""
        values = np.array([run.metrics.get(name) for run in self.runs], dtype=float)
        highest = 1.0 if known_metric(name).unit == "fraction" else math.inf
        return over_seeds(np.where((values >= 0) & (values <= highest), values, np.nan) * factor)


@dataclass(frozen=True)
class Series:
    """Values of one configuration, with standard deviations where there are any."""

    name: str
    style: Style
    look: Look
    x: Values
    y: Values
    std: Values | None = None
    x_std: Values | None = None
    is_hollow: bool = False


@dataclass(frozen=True)
class Chart:
    """A figure that is not drawn yet: series, or matrices of accuracies in percent by title; texts are not escaped."""

    kind: str
    heading: str
    caption: str
    x: str
    y: str
    series: Sequence[Series] = ()
    matrices: Mapping[str, Values] = field(default_factory=dict)
    numbers: Sequence[Sequence[str]] = ()  # headings and rows of its table where they are not those of its values
    is_log: bool = False  # in x
    categories: Sequence[str] = ()  # names at 0, 1, ... from the top, in place of y
    tasks: Sequence[str] = ()  # at 1, 2, ... of x, and of y of a matrix
    span: tuple[float, float] | None = None  # shaded

    def table(self) -> list[Sequence[str]]:
        """Return headings and rows with all values."""
        return list(self.numbers or self._rows())

    def _rows(self) -> Iterator[Sequence[str]]:
        shown = [each for each in self.series if each.look != "step"]
        if self.matrices:
            yield ("configuration", self.y, *(f"{self.x} {task} (%)" for task in self.tasks))
            for title, matrix in self.matrices.items():
                for task, values in zip(self.tasks, matrix, strict=False):
                    yield (title, task, *map(text_of, values), *["-"] * (len(self.tasks) - len(values)))
        elif self.is_log:
            yield ("configuration", self.x, self.y)
            yield from ((each.name, _cells(each.x, each.x_std, 3)[0], _cells(each.y, each.std, 2)[0]) for each in shown)
        else:
            most = len(self.tasks)
            yield ("configuration", *(f"{self.x} {task}" for task in self.tasks))
            for each in shown:
                cells = _cells(each.y, each.std, 1) + ["-"] * (most - len(each.x))
                yield (each.name, *(cells if each.look == "line" else ["-"] * (most - 1) + cells[-1:]))


def text_of(mean: float, std: float = math.nan, decimals: int = 1) -> str:
    """Format a mean and its deviation: ``95.1 ± 0.4``; ``-``: not measured."""
    if not math.isfinite(mean):
        return "-"
    text = f"{round(mean, decimals) + 0.0:,.{decimals}f}"  # adding 0.0 turns -0.0 into 0.0
    return text + (f" ± {std:,.{decimals}f}" if math.isfinite(std) else "")


def _cells(values: Values, std: Values | None, decimals: int) -> list[str]:
    deviations = np.full(len(values), np.nan) if std is None else std
    return [text_of(float(value), float(own), decimals) for value, own in zip(values, deviations, strict=True)]


def task_labels(configurations: Sequence[Configuration]) -> list[str]:
    """Number tasks from 1, with the names of their classes where all runs have the same: ``1: oak, elm, +8``."""
    known = {run.task_class_names for each in configurations for run in each.runs}
    named, tasks = known.pop() if len(known) == 1 else (), range(max(each.tasks for each in configurations))
    return [f"{task + 1}: {_shorten(named[task])}" if named[task : task + 1] else str(task + 1) for task in tasks]


def _shorten(names: Sequence[str]) -> str:
    names = [name if len(name) <= _MOST_LETTERS else f"{name[: _MOST_LETTERS - 1]}…" for name in names]
    ends = itertools.accumulate(len(name) + 2 for name in names)
    shown = max(1, sum(end <= _MOST_LETTERS for end in ends))
    return ", ".join([*names[:shown], *([f"+{len(names) - shown}"] if len(names) > shown else [])])


def compare(drawn: Sequence[Configuration], references: Sequence[Configuration], by: str = "acc") -> list[Chart]:
    """Make the charts that compare the configurations of a group, that of size first; of references what compares."""
    measured = [size for size in SIZES if any(math.isfinite(float(each.metric(size).mean)) for each in drawn)]
    sizes = [accuracy_against(size, drawn, references, by) for size in measured]
    return [*sizes[:1], average_accuracy(drawn, references), *sizes[1:], accuracy_matrices(drawn)]


def average_accuracy(drawn: Sequence[Configuration], references: Sequence[Configuration] = ()) -> Chart:
    """Chart the average accuracy on the tasks learned so far, after each task; references are lines across."""
    tasks = task_labels((*drawn, *references))
    places = np.arange(1, len(tasks) + 1, dtype=float)
    series = [Series(each.title, each.style, "line", places[: each.tasks], *each.averages) for each in drawn]
    for each in references:
        accuracy = np.full(len(places), each.metric("acc", 100).mean)
        if np.isfinite(accuracy).all():
            series.append(Series(each.title, each.style, "across", places, accuracy, is_hollow=True))
    return Chart(
        "average-accuracy",
        "Average accuracy on the tasks learned so far",
        _BAND + _what_references_are(references) + basis((*drawn, *references)),
        "after learning task",
        "average accuracy (%)",
        series,
        tasks=tasks,
    )


def accuracy_against(
    metric: str, drawn: Sequence[Configuration], references: Sequence[Configuration] = (), upwards: str = "acc"
) -> Chart:
    """Chart an accuracy over a metric of :data:`SIZES` with the front; references are hollow."""
    points: list[Series] = []
    front: list[tuple[float, float]] = []
    for each in (*drawn, *references):
        accuracy, size = each.metric(upwards, 100), each.metric(metric, UNITS[METRICS[metric].unit].factor)
        if math.isfinite(float(accuracy.mean)) and float(size.mean) > 0:
            x, x_std, y, std = (np.atleast_1d(values) for values in (*size, *accuracy))
            points.append(Series(each.title, each.style, "point", x, y, std, x_std, each.reference is not None))
    for point in sorted(points, key=lambda point: (float(point.x[0]), -float(point.y[0]))):
        if not point.is_hollow and (not front or point.y[0] > front[-1][1]):
            front.append((float(point.x[0]), float(point.y[0])))
    if front:
        x, y = np.array([*front, (max(float(point.x[0]) for point in points), front[-1][1])]).T
        points.append(Series("front", style(0, GREY), "step", x, y))
    return Chart(
        f"accuracy-{SIZES[metric]}",
        f"Accuracy against {SIZES[metric]}",
        "Further left and higher is better; steps are the front of those drawn: nothing is above it or left of it. "
        f"Upwards: {METRICS[upwards].summary}. {_BAND}{_what_references_are(references)}{basis((*drawn, *references))}",
        METRICS[metric].column or metric,
        (METRICS[upwards].column or upwards).replace("acc ", "accuracy "),
        points,
        is_log=True,
    )


def accuracy_matrices(drawn: Sequence[Configuration]) -> Chart:
    """Chart the accuracy on each task after each task, a panel for each configuration."""
    return Chart(
        "heat-maps",
        "Accuracy matrix",
        "R[i][j], the accuracy on task j after learning task i, mean over seeds; brighter is better. Only the lower "
        f"triangle is measured: what is blank was not.{basis(drawn)}",
        "accuracy on task",
        "after learning task",
        matrices={each.title: over_seeds(each.matrices).mean for each in drawn},
        tasks=task_labels(drawn),
    )


def average_ranks(comparison: BenchmarkComparison, metrics: Mapping[str, Metric], installed: Installed) -> Chart:
    """Chart average ranks over benchmarks, the best on top; what is significantly worse is hollow.

    The bars of a critical-difference diagram join pairs; here each is compared with the best alone, as Demsar (JMLR 7,
    2006) has it for a control, and the critical difference to it is shaded.
    """
    ranks, metric = comparison.ranks, known_metric(comparison.metric, metrics)
    names = {row.configuration: display_label(row.configuration, installed) for row in ranks.rows}
    shown = ranks.rows[:MOST_RANKED]
    series = []
    for is_worse, name in ((False, "not told from the best"), (True, "significantly worse than the best")):
        places = [place for place, row in enumerate(shown) if (row.verdict == "significant") is is_worse]
        means = np.array([shown[place].average_rank for place in places])
        series.append(Series(name, style(0), "point", means, np.array(places, dtype=float), is_hollow=is_worse))
    column = metric.column or comparison.metric
    rows: list[Sequence[str]] = [
        ("configuration", "average rank", "p (Holm)", "beside the best", *(f"{b} ({column})" for b in ranks.benchmarks))
    ]
    for row in ranks.rows:
        values = [
            f"{metric.format_cell(comparison.means[name][row.configuration])} (rank {row.ranks[name]:g})"
            for name in ranks.benchmarks
        ]
        p_holm = "-" if row.p_holm is None else f"{row.p_holm:.4f}"
        rows.append((names[row.configuration], f"{row.average_rank:.2f}", p_holm, row.verdict or "the best", *values))
    said, span = "Nothing is said of significance: there are too few benchmarks or configurations.", None
    if ranks.friedman_p_value is not None:
        best = next(row.average_rank for row in ranks.rows if row.configuration == ranks.control)
        span = best, best + ranks.critical_difference
        said = (
            f"Filled: not significantly worse than {names[ranks.control]}, the best, by Holm's correction after "
            f"Friedman's test (p = {ranks.friedman_p_value:.4f}); shaded: its critical difference (Bonferroni-Dunn)."
        )
    more = f" {len(ranks.rows) - len(shown)} more are in the table." if len(ranks.rows) > len(shown) else ""
    seeds = _seed_counts([len(seeds) for seeds in comparison.seeds for _ in ranks.rows])
    protocol = with_scenario(f"Protocol {printable(comparison.protocol)}", comparison.scenario)
    return Chart(
        "average-ranks",
        f"Average ranks over {len(ranks.benchmarks)} benchmarks",
        f"Further left is better; 1 would be the best on every benchmark. {said}{more} {protocol}; {column}, means "
        f"over {seeds}.",
        "average rank",
        "",
        [each for each in series if len(each.x)],
        numbers=rows,
        categories=[names[row.configuration] for row in shown],
        span=span,
    )


def _what_references_are(references: Sequence[Configuration]) -> str:
    texts = "; ".join(f"{each.label}: {each.reference}" for each in references)
    return f" What is grey is a reference, which is not ranked ({texts})." if references else ""


def basis(configurations: Sequence[Configuration]) -> str:
    """Say in sentences what a figure rests on: benchmark, protocol, scenario, seeds, and whose options were tuned."""
    run = configurations[0].runs[0]
    protocol = with_scenario(f"protocol {printable(run.protocol)}", run.scenario)
    seeds = _seed_counts([len(each.runs) for each in configurations])
    said = [f"Benchmark {printable(run.benchmark)}, version {run.benchmark_version}, {protocol}, {seeds}"]
    if few := [each.label for each in configurations if len(each.runs) < FEWEST_PAIRS]:
        said.append(f"Fewer than {FEWEST_PAIRS} seeds, too few to tell a difference from chance: {', '.join(few)}")
    tuned = [each.label for each in configurations if all(run.tuned is not None for run in each.runs)]
    said.append(f"Hyper-parameters were tuned for: {', '.join(tuned) or 'none'}")
    return "".join(f" {text}." for text in said)


def _seed_counts(counts: Sequence[int]) -> str:
    least, most = min(counts), max(counts)
    return f"{least} to {most} seeds each" if least < most else f"{most} seed{'s' * (most != 1)} each"
