"""Figures of accuracy over the sequence: of each task, of the tasks learned so far, original against retained, and
heat maps of the accuracy matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from seu_bench.results.report.canvas import label_outer, legend_below, line_and_band, panels, percent_scale, whole_ticks
from seu_bench.results.report.picture import (
    BLACK,
    INK,
    MUTED,
    PAPER,
    WHITE,
    Configuration,
    Picture,
    by_configuration,
    short,
)
from seu_bench.results.report.summary import SeedSummary, accuracies, averages, original_and_retained, task_names

#: Tasks that have a panel each; of longer streams as many are chosen, evenly over the sequence.
MOST_PANELS = 20
#: Tasks up to which each square has its number in it.
MOST_NUMBERED = 10
#: Steps of the scale: squares of a heat map, and no shades that nobody can distinguish.
_STEPS = 20
_BAND = "Lines are means over seeds, bands one standard deviation (n - 1); what was not measured is a gap."


def accuracy_curves(configurations: Sequence[Configuration]) -> Picture:
    """The accuracy on each task after every task learned since: ``R[i][j]`` over i, a panel for each j."""
    measured = [(each, accuracies(each.runs)) for each in configurations]
    names = task_names([run for each in configurations for run in each.runs])
    shown = _evenly(len(names), MOST_PANELS)

    def draw() -> Figure:
        columns = min(5, len(shown))
        figure, axes = panels(len(shown), columns, (2.1, 2.1))
        for panel, task in zip(axes, shown, strict=True):
            learned = [(each, summary[task:, task]) for each, summary in measured if task < len(summary.mean)]
            _lines(panel, learned, first=task)
            panel.set_title(short(names[task], 24))
        _finish(figure, axes[0], measured, columns=3)
        label_outer(axes, columns, "after learning task", "accuracy (%)")
        return figure

    def in_words(summary: SeedSummary) -> str:
        return ", ".join(
            f"{names[task]} {summary[task, task].text()} when learned and {summary[-1, task].text()} at the end"
            for task in _evenly(len(summary.mean), 4)
        )

    headings = ("configuration (%)", "after task", *[f"on task {task}" for task in range(len(names))])
    rows = [
        (each.title, str(row), *summary[row].cells(), *["-"] * (len(names) - len(summary.mean)))
        for each, summary in measured
        for row in range(len(summary.mean))
        if np.isfinite(summary.mean[row]).any()
    ]
    some = "" if len(shown) == len(names) else f" {len(shown)} of {len(names)} tasks are drawn."
    return Picture(
        "accuracy-curves",
        "Accuracy on each task over the sequence",
        f"A panel for each task, from when it is learned to the end of the sequence. {_BAND}{some}",
        f"Accuracy on each of {len(names)} tasks over the sequence. " + by_configuration(measured, in_words),
        draw,
        [headings, *rows] if len(names) <= 10 else (),
    )


def average_curve(configurations: Sequence[Configuration]) -> Picture:
    """The average accuracy on the tasks learned so far, after each task."""
    measured = [(each, averages(each.runs)) for each in configurations]
    tasks = max(len(summary.mean) for _, summary in measured)

    def draw() -> Figure:
        figure, (axes,) = panels(1, 1, (7.5, 4.0))
        _lines(axes, measured)
        axes.set_xlabel("after learning task")
        axes.set_ylabel("average accuracy on the\ntasks learned so far (%)")
        _finish(figure, axes, measured, columns=2)
        return figure

    def in_words(summary: SeedSummary) -> str:
        return f"{summary[0].text()} after task 0, {summary[-1].text()} after task {len(summary.mean) - 1}"

    headings = ("configuration (%)", *[f"after task {task}" for task in range(tasks)])
    return Picture(
        "average-accuracy",
        "Average accuracy on the tasks learned so far",
        _BAND,
        f"Average accuracy on the tasks learned so far, over {tasks} tasks. " + by_configuration(measured, in_words),
        draw,
        [headings, *[(each.title, *summary.cells()) for each, summary in measured]],
    )


def original_against_retained(configurations: Sequence[Configuration]) -> Picture:
    """Accuracy on each task right after learning it, beside that at the end."""
    measured = [(each, original_and_retained(each.runs)) for each in configurations]
    tasks = max(len(original.mean) for _, (original, _) in measured)
    shown = _evenly(tasks, MOST_PANELS)

    def draw() -> Figure:
        few = len(shown) <= 6
        columns, size = min(4 if few else 2, len(measured)), (2.5, 2.0) if few else (4.8, 1.9)
        figure, axes = panels(len(measured), columns, size)
        for panel, (configuration, (original, retained)) in zip(axes, measured, strict=True):
            color = configuration.style.color
            _bars(panel, original, shown, -0.2, facecolor=color, edgecolor=color)
            _bars(panel, retained, shown, 0.2, facecolor="none", edgecolor=color, hatch="//////")
            panel.set_title(short(configuration.title, round(10 * size[0])))
            panel.set_xticks(range(len(shown)), [str(task) for task in shown])
            panel.grid(visible=False, axis="x")
        axes[0].set_ylim(0, 105)
        label_outer(axes, columns, "task", "accuracy (%)")
        kinds = [
            Patch(facecolor=MUTED, edgecolor=INK, label="original: right after learning the task"),
            Patch(facecolor="none", edgecolor=MUTED, hatch="////", label="retained: after the last task"),
        ]
        legend_below(figure, kinds, 2)
        return figure

    def in_words(pair: tuple[SeedSummary, SeedSummary]) -> str:
        original, retained = pair
        fall = original.mean - retained.mean
        if not np.isfinite(fall).any():
            return "not measured"
        worst = int(np.nanargmax(fall))
        values = f"{original[worst].text()} and then {retained[worst].text()}"
        return f"the largest difference is on task {worst}, {values}"

    headings = ("configuration (%)", "", *[f"task {task}" for task in range(tasks)])
    rows = [
        (each.title, what, *summary.cells())
        for each, pair in measured
        for what, summary in zip(("original", "retained"), pair, strict=True)
    ]
    return Picture(
        "original-retained",
        "Original and retained accuracy",
        "Right after learning a task (filled) and after the last task (hatched): means over seeds, with one standard "
        "deviation. A bar that is missing was not measured.",
        "Accuracy on each task right after learning it, and after the last task. "
        + by_configuration(measured, in_words),
        draw,
        [headings, *rows] if tasks <= 20 else (),
    )


def heat_maps(configurations: Sequence[Configuration]) -> Picture:
    """The accuracy on each task after each task, a panel for each configuration."""
    measured = [(each, accuracies(each.runs)) for each in configurations]

    def draw() -> Figure:
        columns = min(4, len(measured))
        figure, axes = panels(len(measured), columns, (2.5, 2.5), layout="compressed")
        norm = BoundaryNorm(np.linspace(0, 100, _STEPS + 1), _STEPS)
        colors = colormaps["cividis"].resampled(_STEPS)
        for panel, (configuration, summary) in zip(axes, measured, strict=True):
            values = summary.mean
            edges = np.arange(len(values) + 1) - 0.5
            shown = np.ma.masked_invalid(values)
            mesh = panel.pcolormesh(edges, edges, shown, cmap=colors, norm=norm, edgecolors=PAPER, linewidth=0.6)
            for row, task in np.argwhere(np.isfinite(values)) if len(values) <= MOST_NUMBERED else ():
                ink = BLACK if values[row, task] >= 50 else WHITE
                size = 8 if len(values) <= 6 else 5.5
                panel.text(task, row, f"{values[row, task]:.0f}", ha="center", va="center", fontsize=size, color=ink)
            panel.set_title(short(configuration.title, 27))
            panel.set_aspect("equal")
            panel.grid(visible=False)
        largest = max(len(summary.mean) for _, summary in measured)
        axes[0].set_xlim(-0.5, largest - 0.5)
        axes[0].set_ylim(largest - 0.5, -0.5)
        whole_ticks(axes[0].xaxis, axes[0].yaxis)
        label_outer(axes, columns, "accuracy on task", "after learning task")
        bar = figure.colorbar(mesh, ax=axes, label="accuracy (%)", ticks=[0, 20, 40, 60, 80, 100], aspect=30)
        bar.ax.minorticks_off()
        bar.ax.grid(visible=False)
        return figure

    def in_words(summary: SeedSummary) -> str:
        tasks = range(min(len(summary.mean), 10))
        learned = ", ".join(summary[task, task].text("") for task in tasks)
        last = ", ".join(summary[-1, task].text("") for task in tasks)
        return f"diagonal, each task when learned, {learned}; last row, at the end, {last}"

    return Picture(
        "heat-maps",
        "Accuracy matrix",
        "R[i][j], the accuracy on task j after learning task i, mean over seeds; brighter is better. Only the lower "
        "triangle is measured: what is blank was not.",
        "Heat maps of the accuracy in percent on each task after each task. " + by_configuration(measured, in_words),
        draw,
    )


def _lines(axes: Axes, measured: Sequence[tuple[Configuration, SeedSummary]], first: int = 0) -> None:
    """Means and bands over tasks from ``first`` on. A value between gaps is still seen: it has its marker."""
    for configuration, summary in measured:
        line_and_band(axes, first, summary, 0.16, label=configuration.title, **configuration.style.plotted())


def _finish(figure: Figure, axes: Axes, measured: Sequence[tuple[Configuration, SeedSummary]], columns: int) -> None:
    """Scale tasks and accuracies, of all panels with these axes, and name the configurations below."""
    lows = [float(np.nanmin(summary.band[0])) for _, summary in measured if np.isfinite(summary.mean).any()]
    percent_scale(axes, min(lows, default=0.0))
    axes.set_xlim(-0.3, max(len(summary.mean) for _, summary in measured) - 0.7)
    whole_ticks(axes.xaxis)
    legend_below(figure, [each.key for each, _ in measured], columns)


def _bars(axes: Axes, summary: SeedSummary, shown: Sequence[int], side: float, **look: Any) -> None:
    tasks = [task for task in shown if task < len(summary.mean) and np.isfinite(summary.mean[task])]
    places = [shown.index(task) + side for task in tasks]
    axes.bar(places, summary.mean[tasks], width=0.36, linewidth=1, **look)
    std = np.nan_to_num(summary.std[tasks], nan=0.0)
    if std.any():
        axes.errorbar(places, summary.mean[tasks], std, fmt="none", ecolor=INK, elinewidth=0.9, capsize=2)


def _evenly(count: int, most: int) -> list[int]:
    """Choose at most ``most`` of 0 .. count - 1, the first and the last among them."""
    return sorted({round(float(place)) for place in np.linspace(0, count - 1, min(count, most))})
