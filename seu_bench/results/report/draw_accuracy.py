"""Figures of accuracy over the sequence: of each task, of the tasks learned so far, original against retained, and
heat maps of the accuracy matrix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seu_bench.results.report.canvas import label_outer, legend_below, panels, whole_numbers
from seu_bench.results.report.picture import (
    INK,
    MUTED,
    PAPER,
    Configuration,
    Numbers,
    Picture,
    by_configuration,
    legend_label,
    short,
)
from seu_bench.results.report.summary import (
    SeedSummary,
    accuracies,
    average_accuracy,
    original_and_retained,
    task_names,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Tasks that have a panel each; of longer streams as many are chosen, evenly over the sequence.
MOST_PANELS = 20
#: Tasks up to which each square has its number in it.
MOST_NUMBERED = 10
#: Steps of the scale: squares of a heat map, and no shades that nobody can distinguish.
_STEPS = 20
#: Of the two inks within a square; neither is one that a dark page exchanges.
_LIGHT_INK, _DARK_INK = "#fdfdfd", "#0b0d10"
_BAND = "Lines are means over seeds, bands one standard deviation (n - 1); what was not measured is a gap."


def accuracy_curves(configurations: Sequence[Configuration]) -> Picture:
    """The accuracy on each task after every task learned since: ``R[i][j]`` over i, a panel for each j."""
    summaries = [accuracies(configuration.runs) for configuration in configurations]
    names = task_names([run for configuration in configurations for run in configuration.runs])
    shown = _evenly(len(names), MOST_PANELS)

    def draw() -> Figure:
        columns = max(1, min(5, len(shown)))
        figure, axes = panels(len(shown), columns, (2.1, 2.1))
        for panel, task in zip(axes, shown, strict=True):
            for configuration, summary in zip(configurations, summaries, strict=True):
                if task < len(summary.mean):
                    _line(panel, summary[task:, task], configuration, first=task)
            panel.set_title(short(names[task], 24))
        _common_scale(axes, summaries)
        label_outer(axes, columns, "after learning task", "accuracy (%)")
        legend_below(figure, _handles(configurations), 3)
        return figure

    texts = [
        ", ".join(
            f"{names[task]} {summary[task, task].text()} when learned and {summary[-1, task].text()} at the end"
            for task in _evenly(len(summary.mean), 4)
        )
        for summary in summaries
    ]
    rows = tuple(
        (configuration.title, str(row), *summary[row].cells(), *["-"] * (len(names) - len(summary.mean)))
        for configuration, summary in zip(configurations, summaries, strict=True)
        for row in range(len(summary.mean))
        if np.isfinite(summary.mean[row]).any()
    )
    headings = ("configuration (%)", "after task", *[f"on task {task}" for task in range(len(names))])
    some = "" if len(shown) == len(names) else f" {len(shown)} of {len(names)} tasks are drawn."
    return Picture(
        "accuracy-curves",
        "Accuracy on each task over the sequence",
        f"A panel for each task, from when it is learned to the end of the sequence. {_BAND}{some}",
        f"Accuracy on each of {len(names)} tasks over the sequence. " + by_configuration(configurations, texts),
        draw,
        Numbers(headings, rows) if len(names) <= 10 else None,
    )


def average_curve(configurations: Sequence[Configuration]) -> Picture:
    """The average accuracy on the tasks learned so far, after each task."""
    summaries = [average_accuracy(configuration.runs) for configuration in configurations]
    tasks = max(len(summary.mean) for summary in summaries)

    def draw() -> Figure:
        figure, (axes,) = panels(1, 1, (7.5, 4.0))
        for configuration, summary in zip(configurations, summaries, strict=True):
            _line(axes, summary, configuration)
        _common_scale([axes], summaries)
        axes.set_xlabel("after learning task")
        axes.set_ylabel("average accuracy on the\ntasks learned so far (%)")
        legend_below(figure, _handles(configurations), 2)
        return figure

    texts = [
        f"{summary[0].text()} after task 0, {summary[-1].text()} after task {len(summary.mean) - 1}"
        for summary in summaries
    ]
    named = zip(configurations, summaries, strict=True)
    return Picture(
        "average-accuracy",
        "Average accuracy on the tasks learned so far",
        _BAND,
        f"Average accuracy on the tasks learned so far, over {tasks} tasks. " + by_configuration(configurations, texts),
        draw,
        Numbers(
            ("configuration (%)", *[f"after task {task}" for task in range(tasks)]),
            tuple((configuration.title, *summary.cells()) for configuration, summary in named),
        ),
    )


def original_against_retained(configurations: Sequence[Configuration]) -> Picture:
    """Accuracy on each task right after learning it, beside that at the end."""
    pairs = [original_and_retained(configuration.runs) for configuration in configurations]
    tasks = max(len(original.mean) for original, _ in pairs)
    shown = _evenly(tasks, MOST_PANELS)

    def draw() -> Figure:
        from matplotlib.patches import Patch

        columns = min(4 if len(shown) <= 6 else 2, len(pairs))
        size = (2.5, 2.0) if len(shown) <= 6 else (4.8, 1.9)
        figure, axes = panels(len(pairs), columns, size)
        for panel, configuration, pair in zip(axes, configurations, pairs, strict=True):
            _bars(panel, pair, shown, configuration.style.color)
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

    texts, rows = [], []
    for configuration, (original, retained) in zip(configurations, pairs, strict=True):
        fall = original.mean - retained.mean
        texts.append("not measured")
        if np.isfinite(fall).any():
            worst = int(np.nanargmax(fall))
            values = f"{original[worst].text()} and then {retained[worst].text()}"
            texts[-1] = f"the largest difference is on task {worst}, {values}"
        rows.append((configuration.title, "original", *original.cells()))
        rows.append((configuration.title, "retained", *retained.cells()))
    return Picture(
        "original-retained",
        "Original and retained accuracy",
        "Right after learning a task (filled) and after the last task (hatched): means over seeds, with one standard "
        "deviation. A bar that is missing was not measured.",
        "Accuracy on each task right after learning it, and after the last task. "
        + by_configuration(configurations, texts),
        draw,
        Numbers(("configuration (%)", "", *[f"task {task}" for task in range(tasks)]), tuple(rows))
        if tasks <= 20
        else None,
    )


def heat_maps(configurations: Sequence[Configuration]) -> Picture:
    """The accuracy on each task after each task, a panel for each configuration."""
    summaries = [accuracies(configuration.runs) for configuration in configurations]

    def draw() -> Figure:
        from matplotlib import colormaps
        from matplotlib.colors import BoundaryNorm

        columns = min(4, len(configurations))
        figure, axes = panels(len(configurations), columns, (2.5, 2.5), layout="compressed")
        norm = BoundaryNorm(np.linspace(0, 100, _STEPS + 1), _STEPS)
        colors = colormaps["cividis"].resampled(_STEPS)
        for panel, configuration, summary in zip(axes, configurations, summaries, strict=True):
            values = summary.mean
            edges = np.arange(len(values) + 1) - 0.5
            shown = np.ma.masked_invalid(values)
            mesh = panel.pcolormesh(edges, edges, shown, cmap=colors, norm=norm, edgecolors=PAPER, linewidth=0.6)
            for row, task in np.argwhere(np.isfinite(values)) if len(values) <= MOST_NUMBERED else ():
                ink = _DARK_INK if values[row, task] >= 50 else _LIGHT_INK
                size = 8 if len(values) <= 6 else 5.5
                panel.text(task, row, f"{values[row, task]:.0f}", ha="center", va="center", fontsize=size, color=ink)
            panel.set_title(short(configuration.title, 27))
            panel.set_aspect("equal")
            panel.grid(visible=False)
        largest = max(len(summary.mean) for summary in summaries)
        axes[0].set_xlim(-0.5, largest - 0.5)
        axes[0].set_ylim(largest - 0.5, -0.5)
        whole_numbers(axes[0].xaxis, axes[0].yaxis)
        label_outer(axes, columns, "accuracy on task", "after learning task")
        bar = figure.colorbar(mesh, ax=axes, label="accuracy (%)", ticks=[0, 20, 40, 60, 80, 100], aspect=30)
        bar.ax.minorticks_off()
        bar.ax.grid(visible=False)
        return figure

    texts = []
    for summary in summaries:
        tasks = range(min(len(summary.mean), 10))
        learned = ", ".join(summary[task, task].text("") for task in tasks)
        last = ", ".join(summary[-1, task].text("") for task in tasks)
        texts.append(f"diagonal, each task when learned, {learned}; last row, at the end, {last}")
    return Picture(
        "heat-maps",
        "Accuracy matrix",
        "R[i][j], the accuracy on task j after learning task i, mean over seeds; brighter is better. Only the lower "
        "triangle is measured: what is blank was not.",
        "Heat maps of the accuracy in percent on each task after each task. " + by_configuration(configurations, texts),
        draw,
    )


def _line(axes: Axes, summary: SeedSummary, configuration: Configuration, first: int = 0) -> None:
    """Mean and band over tasks from ``first`` on. A value between gaps is still seen: it has its marker."""
    places = np.arange(first, first + len(summary.mean))
    axes.plot(places, summary.mean, label=configuration.title, **configuration.style.plotted())
    if np.isfinite(summary.std).any():
        axes.fill_between(places, *summary.band, color=configuration.style.color, alpha=0.16, linewidth=0)


def _bars(axes: Axes, pair: tuple[SeedSummary, SeedSummary], shown: Sequence[int], color: str) -> None:
    looks: list[dict[str, Any]] = [
        {"facecolor": color, "edgecolor": color},
        {"facecolor": "none", "edgecolor": color, "hatch": "//////"},
    ]
    for side, summary, look in zip((-0.2, 0.2), pair, looks, strict=True):
        tasks = [task for task in shown if task < len(summary.mean) and math.isfinite(summary.mean[task])]
        places = [shown.index(task) + side for task in tasks]
        axes.bar(places, summary.mean[tasks], width=0.36, linewidth=1, **look)
        std = np.nan_to_num(summary.std[tasks], nan=0.0)
        if std.any():
            axes.errorbar(places, summary.mean[tasks], std, fmt="none", ecolor=INK, elinewidth=0.9, capsize=2)


def _common_scale(axes: Sequence[Axes], summaries: Sequence[SeedSummary]) -> None:
    """Scale from the tens below the lowest band to 100 percent."""
    low = min([float(np.nanmin(s.band[0])) for s in summaries if np.isfinite(s.mean).any()], default=0.0)
    bottom = max(0.0, 10 * math.floor(min(low, 89.9) / 10))
    margin = (100 - bottom) / 25
    axes[0].set_ylim(bottom - margin, 100 + margin)
    axes[0].set_xlim(-0.3, max([len(summary.mean) for summary in summaries], default=1) - 0.7)
    whole_numbers(axes[0].xaxis)


def _handles(configurations: Sequence[Configuration]) -> list[Any]:
    from matplotlib.lines import Line2D

    return [Line2D([], [], label=legend_label(each.title), **each.style.plotted()) for each in configurations]


def _evenly(count: int, most: int) -> list[int]:
    """Choose at most ``most`` of 0 .. count - 1, the first and the last among them."""
    return sorted({round(float(place)) for place in np.linspace(0, count - 1, min(count, most))})
