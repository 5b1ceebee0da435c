"""What each figure of the report shows: values, words, and a table, drawn by :mod:`.drawing` and :mod:`.plotting`."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, Literal, TypeAlias

import numpy as np

from seu_bench.results.comparison import BenchmarkComparison
from seu_bench.results.metric import UNITS, Metric
from seu_bench.results.record import StageRecord
from seu_bench.results.record_metrics import METRICS, known_metric
from seu_bench.results.report import configurations
from seu_bench.results.report.configurations import Configuration, SeedSummary, Style, Values, basis, style, text_of
from seu_bench.results.scenarios import with_scenario
from seu_bench.utils.text import printable

#: How a series is drawn. ``across`` is a line at the final accuracy of a reference, ``step`` a front.
Look: TypeAlias = Literal["line", "point", "across", "step"]
#: Tasks that have a panel each, of longer streams chosen evenly; tasks and epochs of learning curves.
MOST_PANELS, MOST_LINES, MOST_EPOCHS = 20, 10, 5000
#: Configurations of a diagram of ranks; the table has more.
MOST_RANKED: Final = 24
#: Columns of a table that is not turned.
_MOST_COLUMNS: Final = 24
#: Metrics of size and cost that accuracy is drawn against, and what they are called.
SIZES: Final = {"memory_bytes": "memory", "params_total": "parameters", "train_flops": "operations"}
_BAND: Final = "Means over seeds with one standard deviation (n - 1); what was not measured is a gap."


@dataclass(frozen=True)
class Series:
    """Values of one configuration or task in a panel, with standard deviations where there are any."""

    name: str
    style: Style
    look: Look
    x: Values
    y: Values
    std: Values | None = None
    x_std: Values | None = None
    is_hollow: bool = False


@dataclass(frozen=True)
class Panel:
    """Axes of a chart: series, or a matrix of percentages; ``y`` where it has a scale of its own."""

    title: str = ""
    series: Sequence[Series] = ()
    matrix: Values | None = None
    y: str = ""


@dataclass(frozen=True)
class Chart:
    """A figure that is not drawn yet; texts are not escaped.

    ``kind`` is part of its file name, ``columns`` are panels in a row at the most, ``numbers`` headings and rows of its
    table where they are not those of its values. ``x`` may be logarithmic, and ``y`` have names at 0, 1, ... from the
    top; ``span`` is shaded. ``color_label`` is of the scale of matrices.
    """

    kind: str
    heading: str
    caption: str
    panels: Sequence[Panel]
    x: str
    y: str
    columns: int = 1
    numbers: Sequence[Sequence[str]] = ()
    decimals: int = 1
    is_log: bool = False
    categories: Sequence[str] = ()
    span: tuple[float, float] | None = None
    color_label: str = ""

    def table(self) -> list[Sequence[str]]:
        """Return headings and rows with all values."""
        rows = list(self.numbers or self._rows())
        return rows if len(rows[0]) <= _MOST_COLUMNS else list(zip(*rows, strict=True))

    def _rows(self) -> Iterator[Sequence[str]]:
        series = [(panel, each) for panel in self.panels for each in panel.series if each.look != "step"]
        matrices = [(panel.title, panel.matrix) for panel in self.panels if panel.matrix is not None]
        if matrices:
            most = max(len(matrix) for _, matrix in matrices)
            yield ("configuration", self.y, *(f"{self.x} {place} (%)" for place in range(most)))
            for title, matrix in matrices:
                for row, values in enumerate(matrix):
                    yield (title, str(row), *(text_of(value) for value in values), *["-"] * (most - len(values)))
        elif self.is_log:
            yield ("configuration", self.x, self.y)
            for _, each in series:
                if each.look == "point":
                    yield (each.name, _cells(each.x, each.x_std, 3)[0], _cells(each.y, each.std, 2)[0])
        else:
            places = sorted({int(x) for _, each in series for x in each.x})
            yield ("name", "panel", *(f"{self.x} {place}" for place in places))
            for panel, each in series:
                known = dict(zip(map(int, each.x), _cells(each.y, each.std, self.decimals), strict=True))
                if each.look == "across":
                    known = dict(list(known.items())[-1:])
                title = " ".join(filter(None, (panel.title, panel.y or self.y)))
                yield (each.name, title, *(known.get(place, "-") for place in places))


def _cells(values: Values, std: Values | None, decimals: int) -> list[str]:
    deviations = np.full(len(values), np.nan) if std is None else std
    return [text_of(float(value), float(own), decimals) for value, own in zip(values, deviations, strict=True)]


def compare(drawn: Sequence[Configuration], references: Sequence[Configuration]) -> list[Chart]:
    """Make the charts that compare the configurations of a group; of references what compares with them."""
    measured = [size for size in SIZES if any(math.isfinite(float(each.metric(size).mean)) for each in drawn)]
    sizes = [accuracy_against(size, drawn, references) for size in measured]
    others = [accuracy_curves(drawn), accuracy_matrices(drawn), *task_confusion(drawn)]
    return [average_accuracy(drawn, references), *sizes, *others]


def average_accuracy(drawn: Sequence[Configuration], references: Sequence[Configuration] = ()) -> Chart:
    """Chart the average accuracy on the tasks learned so far, after each task; references are lines across."""
    series = [_line(each.title, each.style, each.averages) for each in drawn]
    places = np.arange(max(each.tasks for each in (*drawn, *references)), dtype=float)
    for each in references:
        accuracy = np.full(len(places), each.metric("acc", 100).mean)
        if np.isfinite(accuracy).all():
            series.append(Series(each.title, each.style, "across", places, accuracy, is_hollow=True))
    return Chart(
        "average-accuracy",
        "Average accuracy on the tasks learned so far",
        _BAND + _what_references_are(references) + basis((*drawn, *references)),
        [Panel(series=series)],
        "after learning task",
        "average accuracy on the tasks learned so far (%)",
    )


def accuracy_against(metric: str, drawn: Sequence[Configuration], references: Sequence[Configuration] = ()) -> Chart:
    """Chart final accuracy over a metric of :data:`SIZES` with the front; references are hollow."""
    points: list[Series] = []
    front: list[tuple[float, float]] = []
    for each in (*drawn, *references):
        accuracy, size = each.metric("acc", 100), each.metric(metric, UNITS[METRICS[metric].unit].factor)
        if math.isfinite(float(accuracy.mean)) and float(size.mean) > 0:
            x, x_std, y, std = (np.atleast_1d(values) for values in (*size, *accuracy))
            points.append(Series(each.title, each.style, "point", x, y, std, x_std, each.reference is not None))
    for point in sorted(points, key=lambda point: (float(point.x[0]), -float(point.y[0]))):
        if not point.is_hollow and (not front or point.y[0] > front[-1][1]):
            front.append((float(point.x[0]), float(point.y[0])))
    if front:
        x, y = np.array([*front, (max(float(point.x[0]) for point in points), front[-1][1])]).T
        points.append(Series("front", style(0, configurations.GREY), "step", x, y))
    return Chart(
        f"accuracy-{SIZES[metric]}",
        f"Accuracy against {SIZES[metric]}",
        "Further left and higher is better; steps are the front of those drawn: nothing is above it or left of it. "
        f"{_BAND}{_what_references_are(references)}{basis((*drawn, *references))}",
        [Panel(series=points)],
        METRICS[metric].column or metric,
        "average accuracy after the last task (%)",
        is_log=True,
    )


def accuracy_curves(drawn: Sequence[Configuration]) -> Chart:
    """Chart the accuracy on each task after every task learned since: ``R[i][j]`` over i, a panel for each j."""
    runs = [run for each in drawn for run in each.runs]
    tasks = _evenly(max(each.tasks for each in drawn), MOST_PANELS)
    panels = []
    for task in tasks:
        lines = [_line(c.title, c.style, c.accuracies.at(np.s_[task:, task]), task) for c in drawn if task < c.tasks]
        panels.append(Panel(configurations.task_name(runs, task), lines))
    return Chart(
        "accuracy-curves",
        "Accuracy on each task over the sequence",
        f"A panel for each task, of a long stream for some, from when it is learned on. {_BAND}{basis(drawn)}",
        panels,
        "after learning task",
        "accuracy (%)",
        columns=5,
    )


def accuracy_matrices(drawn: Sequence[Configuration]) -> Chart:
    """Chart the accuracy on each task after each task, a panel for each configuration."""
    return Chart(
        "heat-maps",
        "Accuracy matrix",
        "R[i][j], the accuracy on task j after learning task i, mean over seeds; brighter is better. Only the lower "
        f"triangle is measured: what is blank was not.{basis(drawn)}",
        [Panel(each.title, matrix=each.accuracies.mean) for each in drawn],
        "accuracy on task",
        "after learning task",
        columns=4,
        color_label="accuracy (%)",
    )


def task_confusion(drawn: Sequence[Configuration]) -> list[Chart]:
    """Chart the share of each task's images that are answered with a class of each task, where that was counted."""
    counted = [each for each in drawn if np.isfinite(each.answers.mean).any()]
    if not counted:
        return []
    chart = Chart(
        "task-confusion",
        "Confusion between tasks",
        "To which task the answers to a task's images belong, after the last task: shares of the images, mean over "
        f"seeds. Off the diagonal images were taken for another task's.{basis(counted)}",
        [Panel(each.title, matrix=each.answers.mean) for each in counted],
        "answered as task",
        "images of task",
        columns=4,
        color_label="answers (%)",
    )
    return [chart]


def average_ranks(comparison: BenchmarkComparison, metrics: Mapping[str, Metric] = METRICS) -> Chart:
    """Chart average ranks over benchmarks, the best on top; what is significantly worse is hollow.

    The bars of a critical-difference diagram join pairs; here each is compared with the best alone, as Demsar (JMLR 7,
    2006) has it for a control, and the critical difference to it is shaded.
    """
    ranks, metric = comparison.ranks, known_metric(comparison.metric, metrics)
    shown = ranks.rows[:MOST_RANKED]
    series = []
    for is_worse, name in ((False, "not told from the best"), (True, "significantly worse than the best")):
        places = [place for place, row in enumerate(shown) if (row.verdict == "significant") is is_worse]
        means = np.array([shown[place].mean for place in places])
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
        corrected = "-" if row.corrected is None else f"{row.corrected:.4f}"
        rows.append((row.configuration, f"{row.mean:.2f}", corrected, row.verdict or "the best", *values))
    said, span = "Nothing is said of significance: there are too few benchmarks or configurations.", None
    if ranks.p_value is not None:
        best = next(row.mean for row in ranks.rows if row.configuration == ranks.control)
        span = best, best + ranks.critical_difference
        said = (
            f"Filled: not significantly worse than the best, {ranks.control}, by Holm's correction after Friedman's "
            f"test (p = {ranks.p_value:.4f}); shaded: the critical difference to it (Bonferroni-Dunn)."
        )
    more = f" {len(ranks.rows) - len(shown)} more are in the table." if len(ranks.rows) > len(shown) else ""
    seeds = configurations.seed_counts([len(seeds) for seeds in comparison.seeds for _ in ranks.rows])
    protocol = with_scenario(f"Protocol {printable(comparison.protocol)}", comparison.scenario)
    return Chart(
        "average-ranks",
        f"Average ranks over {len(ranks.benchmarks)} benchmarks",
        f"Further left is better; 1 would be the best on every benchmark. {said}{more} {protocol}; {column}, means "
        f"over {seeds}.",
        [Panel(series=[each for each in series if len(each.x)])],
        "average rank",
        "",
        numbers=rows,
        categories=[row.configuration for row in shown],
        span=span,
    )


def learning_curves(each: Configuration) -> list[Chart]:
    """Chart loss and accuracy over the epochs of each kind of stage, a line for each task, where records have them."""
    kinds: defaultdict[str, defaultdict[int, list[StageRecord]]] = defaultdict(lambda: defaultdict(list))
    for stage in (stage for run in each.runs for stage in run.stages):
        if 0 < max(len(stage.losses), len(stage.accuracies)) <= MOST_EPOCHS:
            kinds[stage.name][stage.task].append(stage)
    panels = []
    for kind, of_tasks in kinds.items():
        shown = [task for task, stages in sorted(of_tasks.items()) if len(stages) == len(each.runs)][:MOST_LINES]
        for label, measured, factor in (("loss (per image)", "losses", 1), ("accuracy (%)", "accuracies", 100)):
            lines = []
            for task in shown:
                rows = [getattr(stage, measured) for stage in of_tasks[task]]
                values = factor * np.array(list(zip_longest(*rows)), dtype=float).T.reshape(len(rows), -1)
                name = configurations.task_name(each.runs, task)
                lines.append(_line(name, style(task), configurations.over_seeds(values), 1))
            panels += [Panel(kind, lines, y=label)] if lines else []
    chart = Chart(
        f"learning-curves-{each.number}",
        f"Learning curves: {each.label}",
        f"Each epoch of each stage of the first {MOST_LINES} tasks, on the images that it learns from, never on test "
        f"images. {_BAND}{basis([each])}",
        panels,
        "epoch",
        "",
        columns=2,
        decimals=3,
    )
    return [chart] if panels else []


def _line(name: str, look: Style, values: SeedSummary, first: int = 0) -> Series:
    return Series(name, look, "line", np.arange(first, first + len(values.mean), dtype=float), *values)


def _what_references_are(references: Sequence[Configuration]) -> str:
    texts = "; ".join(f"{each.label}: {each.reference}" for each in references)
    return f" What is grey is a reference, which is not ranked ({texts})." if references else ""


def _evenly(count: int, most: int) -> list[int]:
    """Choose at most ``most`` of 0 .. count - 1, the first and the last among them."""
    return sorted({round(float(place)) for place in np.linspace(0, count - 1, min(count, most))})
