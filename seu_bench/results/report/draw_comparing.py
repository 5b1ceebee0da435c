"""Figures that compare configurations: accuracy over the sequence, original and retained, and as a matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from seu_bench.results.report import canvas
from seu_bench.results.report.basis import basis
from seu_bench.results.report.canvas import (
    Picture,
    panels,
    percent_scale,
    small,
    whole_ticks,
    with_legend,
    without_margins,
)
from seu_bench.results.report.layout import INK, MUTED, PAGE, PAPER, Layout
from seu_bench.results.report.references import final_accuracies, reference_lines, what_references_are
from seu_bench.results.report.summary import Configuration, SeedSummary, Values, describe, task_name

#: Tasks that have a panel each, of longer streams chosen evenly.
MOST_PANELS: Final = 20
#: Points of a number in a square at the least; where there is no room for it, squares have none.
_LEAST_NUMBER: Final = 6.0
#: Steps of the scale: squares of a heat map, and no shades that nobody can distinguish.
_STEPS = 20
_BAND = "Lines are means over seeds, bands one standard deviation (n - 1); what was not measured is a gap."


def accuracy_curves(configurations: Sequence[Configuration]) -> Picture:
    """The accuracy on each task after every task learned since: ``R[i][j]`` over i, a panel for each j."""
    runs = [run for each in configurations for run in each.runs]
    names = [task_name(runs, task) for task in range(max(each.tasks for each in configurations))]
    shown = evenly(len(names), MOST_PANELS)

    def draw(layout: Layout = PAGE) -> Figure:
        titles = {task: names[task] for task in shown}
        measured = [each.accuracies for each in configurations]
        return _curves(configurations, measured, titles, (2.1, 2.1), "accuracy (%)", 3, layout)

    def in_words(each: Configuration) -> str:
        return ", ".join(
            f"{names[task]} {each.original[task].text()} when learned and {each.retained[task].text()} at the end"
            for task in evenly(each.tasks, 4)
        )

    headings = ("configuration (%)", "after task", *[f"on task {task}" for task in range(len(names))])
    rows = [
        (each.title, str(row), *each.accuracies[row].cells(), *["-"] * (len(names) - each.tasks))
        for each in configurations
        for row in range(each.tasks)
        if np.isfinite(each.accuracies.mean[row]).any()
    ]
    some = "" if len(shown) == len(names) else f" {len(shown)} of {len(names)} tasks are drawn."
    return Picture(
        "accuracy-curves",
        "Accuracy on each task over the sequence",
        f"A panel for each task, from when it is learned to the end of the sequence. {_BAND}{some}"
        f"{basis(configurations)}",
        f"Accuracy on each of {len(names)} tasks over the sequence. " + describe(configurations, in_words),
        draw,
        [headings, *rows] if len(names) <= 10 else (),
    )


def average_curve(configurations: Sequence[Configuration], references: Sequence[Configuration] = ()) -> Picture:
    """The average accuracy on the tasks learned so far, after each task; references are lines across."""
    both = (*configurations, *references)
    tasks = max(each.tasks for each in both)

    def draw(layout: Layout = PAGE) -> Figure:
        y = "average accuracy on the\ntasks learned so far (%)"
        measured = [each.averages[:, None] for each in configurations]
        return _curves(configurations, measured, {0: ""}, (7.5, 4.0), y, 3, layout, references)

    def in_words(each: Configuration) -> str:
        return f"{each.averages[0].text()} after task 0, {each.averages[-1].text()} after task {each.tasks - 1}"

    headings = ("configuration (%)", *[f"after task {task}" for task in range(tasks)])
    return Picture(
        "average-accuracy",
        "Average accuracy on the tasks learned so far",
        _BAND + what_references_are(references) + basis(both),
        f"Average accuracy on the tasks learned so far, over {tasks} tasks. " + describe(both, in_words),
        draw,
        [headings, *[(each.title, *each.averages.cells()) for each in both]],
    )


def original_against_retained(configurations: Sequence[Configuration]) -> Picture:
    """Accuracy on each task right after learning it, beside that at the end."""
    tasks = max(each.tasks for each in configurations)
    shown = evenly(tasks, MOST_PANELS)

    def draw(layout: Layout = PAGE) -> Figure:
        few = len(shown) <= 6
        columns, size = min(4 if few else 2, len(configurations)), (2.5, 2.0) if few else (4.8, 1.9)
        titles = [each.named(layout) for each in configurations]
        figure, axes = panels(titles, columns, size, "task", "accuracy (%)", layout=layout)
        for panel, each in zip(axes, configurations, strict=True):
            color = each.style.color
            _bars(panel, each.original, shown, -0.2, facecolor=color, edgecolor=color)
            _bars(panel, each.retained, shown, 0.2, facecolor="none", edgecolor=color, hatch="//////")
            panel.set_xticks(range(len(shown)), [str(task) for task in shown])
            panel.grid(visible=False, axis="x")
        axes[0].set_ylim(0, 105)
        kinds = [
            Patch(facecolor=MUTED, edgecolor=INK, label="original: right after learning the task"),
            Patch(facecolor="none", edgecolor=MUTED, hatch="////", label="retained: after the last task"),
        ]
        return with_legend(figure, kinds, 2)

    def in_words(each: Configuration) -> str:
        fall = each.original.mean - each.retained.mean
        if not np.isfinite(fall).any():
            return "not measured"
        worst = int(np.nanargmax(fall))
        values = f"{each.original[worst].text()} and then {each.retained[worst].text()}"
        return f"the largest difference is on task {worst}, {values}"

    headings = ("configuration (%)", "accuracy", *[f"task {task}" for task in range(tasks)])
    rows = [
        (each.title, what, *summary.cells())
        for each in configurations
        for what, summary in (("original", each.original), ("retained", each.retained))
    ]
    return Picture(
        "original-retained",
        "Original and retained accuracy",
        "Right after learning a task (filled) and after the last task (hatched): means over seeds, with one standard "
        f"deviation (n - 1). A bar that is missing was not measured.{basis(configurations)}",
        "Accuracy on each task right after learning it, and after the last task. " + describe(configurations, in_words),
        draw,
        [headings, *rows] if tasks <= 20 else (),
    )


def heat_maps(configurations: Sequence[Configuration]) -> Picture:
    """The accuracy on each task after each task, a panel for each configuration."""

    def draw(layout: Layout = PAGE) -> Figure:
        matrices = [each.accuracies.mean for each in configurations]
        labels = "accuracy on task", "after learning task", "accuracy (%)"
        return squares([each.named(layout) for each in configurations], matrices, labels, layout)

    def in_words(each: Configuration) -> str:
        learned, last = (
            ", ".join(summary[task].text("") for task in range(min(each.tasks, 10)))
            for summary in (each.original, each.retained)
        )
        return f"diagonal, each task when learned, {learned}; last row, at the end, {last}"

    return Picture(
        "heat-maps",
        "Accuracy matrix",
        "R[i][j], the accuracy on task j after learning task i, mean over seeds; brighter is better. Only the lower "
        f"triangle is measured: what is blank was not.{basis(configurations)}",
        "Heat maps of the accuracy in percent on each task after each task. " + describe(configurations, in_words),
        draw,
    )


def squares(titles: Sequence[str], matrices: Sequence[Values], labels: tuple[str, str, str], layout: Layout) -> Figure:
    """A heat map of each matrix ``[tasks, tasks]`` in percent, NaN where nothing was measured.

    Args:
        titles: of the panels.
        matrices: one for each panel.
        labels: of columns, rows and the scale of colours.
        layout: width and font.
    """
    figure, axes = panels(titles, min(4, len(titles)), (2.5, 2.5), *labels[:2], layout=layout)
    figure.set_layout_engine("compressed")  # leaves no gaps between axes of a fixed aspect
    largest = max(map(len, matrices))
    # Two digits in a square; about a fifth of a panel's width has labels and the scale beside it.
    size = min(small(), 0.8 * 72 * layout.panels(min(4, len(titles)), (2.5, 2.5))[1] / (1.7 * largest))
    norm = BoundaryNorm(np.linspace(0, 100, _STEPS + 1), _STEPS)
    colors = colormaps["cividis"].resampled(_STEPS)
    for panel, values in zip(axes, matrices, strict=True):
        edges = np.arange(len(values) + 1) - 0.5
        shown = np.ma.masked_invalid(values)
        mesh = panel.pcolormesh(edges, edges, shown, cmap=colors, norm=norm, edgecolors=PAPER, linewidth=0.6)
        for row, task in np.argwhere(np.isfinite(values)) if size >= _LEAST_NUMBER else ():
            ink = canvas.BLACK if values[row, task] >= 50 else canvas.WHITE
            panel.text(task, row, f"{values[row, task]:.0f}", ha="center", va="center", fontsize=size, color=ink)
        panel.set_aspect("equal")
        panel.grid(visible=False)
    axes[0].set_xlim(-0.5, largest - 0.5)
    axes[0].set_ylim(largest - 0.5, -0.5)
    whole_ticks(axes[0].xaxis, axes[0].yaxis)
    bar = figure.colorbar(mesh, ax=axes, label=labels[2], ticks=[0, 20, 40, 60, 80, 100], aspect=30)
    bar.ax.minorticks_off()
    bar.ax.grid(visible=False)
    return without_margins(figure)


def _curves(
    configurations: Sequence[Configuration],
    measured: Sequence[SeedSummary],
    titles: Mapping[int, str],
    size: tuple[float, float],
    y: str,
    legend_columns: int,
    layout: Layout,
    references: Sequence[Configuration] = (),
) -> Figure:
    """A panel for each of some columns of what was measured after each task, from the row of its number on."""
    figure, axes = panels(list(titles.values()), min(5, len(titles)), size, "after learning task", y, layout=layout)
    for panel, task in zip(axes, titles, strict=True):
        for each, summary in zip(configurations, measured, strict=True):
            if task < each.tasks:  # a value between gaps is still seen: it has its marker
                summary[task:, task].draw(panel, task, 0.16, label=each.title, **each.style.plotted())
    lows = [float(np.nanmin(summary.low)) for summary in measured if np.isfinite(summary.mean).any()]
    percent_scale(axes[0], min([*lows, *final_accuracies(references)], default=0.0))
    axes[0].set_xlim(-0.3, max(each.tasks for each in configurations) - 0.7)
    whole_ticks(axes[0].xaxis)
    keys = [Line2D([], [], label=each.named(layout), **each.style.plotted()) for each in configurations]
    for panel in axes:
        lines = reference_lines(panel, references, layout)
    return with_legend(figure, [*keys, *lines], legend_columns)


def _bars(axes: Axes, summary: SeedSummary, shown: Sequence[int], side: float, **look: Any) -> None:
    tasks = [task for task in shown if task < len(summary.mean) and np.isfinite(summary.mean[task])]
    places = [shown.index(task) + side for task in tasks]
    axes.bar(places, summary.mean[tasks], width=0.36, linewidth=1, **look)
    std = np.nan_to_num(summary.std[tasks], nan=0.0)
    if std.any():
        axes.errorbar(places, summary.mean[tasks], std, fmt="none", ecolor=INK, elinewidth=0.9, capsize=2)


def evenly(count: int, most: int) -> list[int]:
    """Choose at most ``most`` of 0 .. count - 1, the first and the last among them."""
    return sorted({round(float(place)) for place in np.linspace(0, count - 1, min(count, most))})
