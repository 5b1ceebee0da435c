"""Charts of the page: what a figure shows as plain values, which the page's script draws with plotly.js.

A chart stands where a figure of the same ``kind`` does. Values are means over seeds; what was not measured is ``None``.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final, NamedTuple

import numpy as np

from seu_bench.results.report import canvas
from seu_bench.results.report.canvas import Style
from seu_bench.results.report.draw_comparing import MOST_PANELS, evenly
from seu_bench.results.report.draw_size import MEMORY, PARAMETERS, Size
from seu_bench.results.report.summary import Configuration, Published, SeedSummary, over_seeds, task_name
from seu_bench.utils.text import printable

#: Letters of a line of what is shown beside the pointer, and lines of a name there.
_LINE, _LINES = 44, 4
#: Markers of matplotlib by the names of plotly.js.
_SYMBOLS: Final = {
    "o": "circle",
    "s": "square",
    "^": "triangle-up",
    "D": "diamond",
    "v": "triangle-down",
    "P": "cross",
    "*": "star",
    "X": "x",
}
_HOW: Final = "Error bars are one standard deviation (n - 1)."


@dataclass(frozen=True)
class Points:
    """Points of one series: places, deviations along both axes (empty: none), and words for each where the place and
    its value do not say it."""

    x: Sequence[float | None]
    y: Sequence[float | None]
    up: Sequence[float | None] = ()
    across: Sequence[float | None] = ()
    text: Sequence[str] = ()

    def document(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"x": self.x, "y": self.y, "up": self.up, "across": self.across, "text": self.text}


class View(NamedTuple):
    """A view of a chart: its name in the choice, the title of its axis of ``y``, and the unit beside a value."""

    name: str
    y: str
    unit: str = "%"


@dataclass(frozen=True)
class Series:
    """What one entry of the legend shows or hides.

    Attributes:
        seeds: ``3 seeds``.
        views: its points in each view of the chart.
        is_line: whether they are joined; otherwise they are markers alone.
        is_hollow: whether it competes with nobody here: a reference, or the paper's own result.
    """

    name: str
    seeds: str
    style: Style
    views: tuple[Points, ...]
    is_line: bool = True
    is_hollow: bool = False

    def document(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        dashes = self.style.line[1]
        return {
            "name": self.name,
            "label": _label(self.name),
            "seeds": self.seeds,
            "colors": [self.style.color, canvas.DARK.get(self.style.color, self.style.color)],
            "symbol": _SYMBOLS.get(self.style.marker, "circle"),
            "dash": ",".join(f"{2 * length:g}px" for length in dashes) or "solid",
            "line": self.is_line,
            "hollow": self.is_hollow,
            "views": [points.document() for points in self.views],
        }


@dataclass(frozen=True)
class Chart:
    """A chart.

    Attributes:
        x: title of its axis, with the unit.
        views: what can be chosen, one at a time.
        series: in the order of the legend.
        note: what it shows, where the figure's caption does not say so.
        choice: label of the choice of a view; empty where there is one.
        place: what precedes the number of a place in words; empty where ``x`` is a size, on a logarithmic axis.
    """

    x: str
    views: tuple[View, ...]
    series: tuple[Series, ...]
    note: str
    choice: str = ""
    place: str = ""

    def document(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "x": self.x,
            "place": self.place,
            "views": [view._asdict() for view in self.views],
            "series": [each.document() for each in self.series],
        }


def charts_of(
    drawn: Sequence[Configuration], references: Sequence[Configuration], published: Sequence[Published] = ()
) -> dict[str, Chart]:
    """Make the charts of a group by the kinds of its figures.

    Args:
        drawn: the configurations that figures show.
        references: what competes with nobody.
        published: results of the paper.

    Returns:
        The charts; none where nothing is drawn.
    """
    if not drawn:
        return {}
    return {
        "average-accuracy": average_accuracy(drawn, references),
        f"accuracy-{MEMORY.name}": accuracy_against_size(drawn, references, MEMORY),
        f"accuracy-{PARAMETERS.name}": accuracy_against_size(drawn, references, PARAMETERS, published),
        "accuracy-curves": accuracy_on_each_task(drawn),
        "original-retained": forgetting_of_each_task(drawn),
    }


def average_accuracy(drawn: Sequence[Configuration], references: Sequence[Configuration]) -> Chart:
    """Chart the average accuracy on the tasks learned so far; a reference is a line across."""
    tasks = max(each.tasks for each in (*drawn, *references))
    series = [_series(each, [_points(each.averages)]) for each in drawn]
    for each in references:
        final = each.metric("acc", 100)
        if math.isfinite(float(final.mean)):
            words = f"{final.text()} after the last task"
            across = Points(list(range(tasks)), [_value(final.mean)] * tasks, text=[words] * tasks)
            series.append(Series(each.title, each.seeds, each.style, (across,), is_hollow=True))
    view = View("", "average accuracy so far (%)")
    return Chart("after learning task", (view,), tuple(series), _HOW, place="after task")


def accuracy_against_size(
    drawn: Sequence[Configuration],
    references: Sequence[Configuration],
    size: Size,
    published: Sequence[Published] = (),
) -> Chart:
    """Chart final accuracy against a size, in millions: MB, or million parameters."""
    unit = "MB" if size is MEMORY else "million parameters"
    series = []
    for each in (*drawn, *references):
        accuracy, kept = each.metric("acc", 100), each.metric(size.metric, 1e-6)
        if math.isfinite(float(accuracy.mean)) and float(kept.mean) > 0:
            point = Points(
                [_value(kept.mean)],
                [_value(accuracy.mean)],
                [_value(accuracy.std)],
                [_value(kept.std)],
                [f"{accuracy.text()}<br>{kept.text(f' {unit}', 3)}"],
            )
            is_hollow = each in references
            series.append(Series(each.title, each.seeds, each.style, (point,), is_line=False, is_hollow=is_hollow))
    for known in published:
        millions = known.parameters / 1e6
        point = Points([millions], [known.accuracy], text=[f"{known.accuracy:.2f} %<br>{millions:,.3f} {unit}"])
        name = f"the paper's {known.label}"
        series.append(Series(name, "5 repeats", known.style, (point,), is_line=False, is_hollow=True))
    note = f"{_HOW} Hollow markers compete with nobody here."
    view = View("", "average accuracy after the last task (%)")
    return Chart(f"{size.name} after the last task ({unit})", (view,), tuple(series), note)


def accuracy_on_each_task(drawn: Sequence[Configuration]) -> Chart:
    """Chart the accuracy on a task after every task from it on; the task is chosen, of a long stream some tasks."""
    runs = [run for each in drawn for run in each.runs]
    shown = evenly(max(each.tasks for each in drawn), MOST_PANELS)
    views = tuple(View(task_name(runs, task), "accuracy (%)") for task in shown)
    series = [
        _series(
            each,
            [_points(each.accuracies[task:, task], task) if task < each.tasks else Points([], []) for task in shown],
        )
        for each in drawn
    ]
    note = f"One task at a time, from when it is learned on. {_HOW}"
    return Chart("after learning task", views, tuple(series), note, "Accuracy on", "after task")


def forgetting_of_each_task(drawn: Sequence[Configuration]) -> Chart:
    """Chart what was forgotten of each task: the accuracy right after learning it less that at the end; or either."""

    def fallen(each: Configuration) -> SeedSummary:
        return over_seeds(np.diagonal(each.matrices, axis1=1, axis2=2) - each.matrices[:, -1, :])

    views = (
        View("forgetting", "forgetting (points)", "points"),
        View("accuracy right after learning it", "accuracy (%)"),
        View("accuracy after the last task", "accuracy (%)"),
    )
    series = [_series(each, map(_points, (fallen(each), each.original, each.retained))) for each in drawn]
    note = f"Forgetting is the accuracy on a task right after learning it less that after the last task. {_HOW}"
    return Chart("task", views, tuple(series), note, "Show", "task")


def _series(each: Configuration, views: Iterable[Points]) -> Series:
    return Series(each.title, each.seeds, each.style, tuple(views))


def _points(summary: SeedSummary, first: int = 0) -> Points:
    """Points at ``first``, ``first + 1``, ... of a summary ``[places]``."""
    places = range(first, first + len(summary.mean))
    return Points(list(places), list(map(_value, summary.mean)), list(map(_value, summary.std)))


def _value(value: Any) -> float | None:
    """A number with seven digits, more than can be seen; ``None`` where it was not measured."""
    return float(f"{float(value):.7g}") if math.isfinite(float(value)) else None


def _label(name: str) -> str:
    """Lines of plotly.js for a name, in which one of any record stays text."""
    folded = textwrap.wrap(printable(name), _LINE, max_lines=_LINES, placeholder=" …")
    return "<br>".join(f"<b>{escape(line, quote=False)}</b>" for line in folded)
