"""Figures of accuracy over the sequence: of each task, of the tasks learned so far, original against retained."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seu_bench.results.report.canvas import Margins, label_outer, legend_below, legend_height, panels, whole_numbers
from seu_bench.results.report.picture import Configuration, Numbers, Picture, over, sentences
from seu_bench.results.report.styles import INK, MUTED, legend_label, short
from seu_bench.results.report.summary import (
    SampleSummary,
    accuracies,
    average_accuracy,
    original_and_retained,
    said,
    task_names,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Tasks that have a panel each; of longer streams as many are chosen, evenly over the sequence.
MOST_PANELS = 20
_BAND = "Lines are means over seeds, bands one standard deviation (n - 1); what was not measured is a gap."


def accuracy_curves(configurations: Sequence[Configuration]) -> Picture:
    """The accuracy on each task after every task learned since: ``R[i][j]`` over i, a panel for each j."""
    spreads = [accuracies(configuration.runs) for configuration in configurations]
    names = task_names([run for configuration in configurations for run in configuration.runs])
    shown = _evenly(len(names), MOST_PANELS)
    labels = _labels(configurations)

    def draw() -> Figure:
        columns = max(1, min(5, len(shown)))
        figure, axes = panels(len(shown), columns, (1.85, 1.65), Margins(), legend_height(labels, 3))
        for panel, task in zip(axes, shown, strict=True):
            for configuration, spread in zip(configurations, spreads, strict=True):
                if task < spread.mean.shape[0]:
                    _line(panel, spread[task:, task], configuration, first=task)
            panel.set_title(short(names[task], 24))
        _common_scale(axes, spreads)
        label_outer(figure, axes, columns, "after learning task", "accuracy (%)")
        legend_below(figure, _handles(configurations), 3)
        return figure

    said_of = [
        f"{configuration.title} ({over(configuration)}): "
        + ", ".join(
            f"{names[task]} {said(spread[task, task])} when learned and {said(spread[-1, task])} at the end"
            for task in _evenly(len(spread.mean), 4)
        )
        for configuration, spread in zip(configurations, spreads, strict=True)
    ]
    left = "" if len(shown) == len(names) else f" {len(shown)} of {len(names)} tasks are drawn."
    return Picture(
        "accuracy-curves",
        "Accuracy on each task over the sequence",
        f"A panel for each task, from when it is learned to the end of the sequence. {_BAND}{left}",
        f"Accuracy on each of {len(names)} tasks over the sequence. " + sentences(said_of),
        draw,
        _matrix_numbers(configurations, spreads) if len(names) <= 10 else None,
    )


def average_curve(configurations: Sequence[Configuration]) -> Picture:
    """The average accuracy on the tasks learned so far, after each task."""
    spreads = [average_accuracy(configuration.runs) for configuration in configurations]
    tasks = max(len(spread.mean) for spread in spreads)
    labels = _labels(configurations)

    def draw() -> Figure:
        margins = Margins(left=0.85, top=0.12, bottom=0.46)
        figure, (axes,) = panels(1, 1, (6.6, 3.4), margins, legend_height(labels, 2))
        for configuration, spread in zip(configurations, spreads, strict=True):
            _line(axes, spread, configuration)
        _common_scale([axes], spreads)
        axes.set_xlabel("after learning task")
        axes.set_ylabel("average accuracy on the\ntasks learned so far (%)")
        legend_below(figure, _handles(configurations), 2)
        return figure

    said_of = [
        f"{configuration.title} ({over(configuration)}): {said(spread[0])} after task 0, "
        f"{said(spread[-1])} after task {len(spread.mean) - 1}"
        for configuration, spread in zip(configurations, spreads, strict=True)
        if len(spread.mean)
    ]
    rows = tuple(
        (configuration.title, *[said(spread[task], "", missing="-") for task in range(len(spread.mean))])
        for configuration, spread in zip(configurations, spreads, strict=True)
    )
    return Picture(
        "average-accuracy",
        "Average accuracy on the tasks learned so far",
        _BAND,
        f"Average accuracy on the tasks learned so far, over {tasks} tasks. " + sentences(said_of),
        draw,
        Numbers(("configuration (%)", *[f"after task {task}" for task in range(tasks)]), rows),
    )


def original_against_retained(configurations: Sequence[Configuration]) -> Picture:
    """Accuracy on each task right after learning it beside what is left at the end."""
    pairs = [original_and_retained(configuration.runs) for configuration in configurations]
    tasks = max(len(original.mean) for original, _ in pairs)
    shown = _evenly(tasks, MOST_PANELS)

    def draw() -> Figure:
        from matplotlib.patches import Patch

        columns = min(4 if len(shown) <= 6 else 2, len(pairs))
        size = (2.25, 1.55) if columns > 2 or len(shown) <= 6 else (4.6, 1.25)
        figure, axes = panels(len(pairs), columns, size, Margins(top=0.46, down=0.55), 0.32)
        for panel, configuration, pair in zip(axes, configurations, pairs, strict=True):
            _bars(panel, pair, shown, configuration.style.color)
            panel.set_title(short(configuration.title, round(12 * size[0])))
            panel.set_xticks(range(len(shown)), [str(task) for task in shown])
            panel.grid(visible=False, axis="x")
        axes[0].set_ylim(0, 105)
        label_outer(figure, axes, columns, "task", "accuracy (%)")
        kinds = [
            Patch(facecolor=MUTED, edgecolor=INK, label="original: right after learning the task"),
            Patch(facecolor="none", edgecolor=MUTED, hatch="////", label="retained: after the last task"),
        ]
        legend_below(figure, kinds, 2)
        return figure

    said_of, rows = [], []
    for configuration, (original, retained) in zip(configurations, pairs, strict=True):
        fall = original.mean - retained.mean
        worst = int(np.nanargmax(fall)) if np.isfinite(fall).any() else None
        text = (
            "not measured"
            if worst is None
            else (
                f"the largest difference is on task {worst}, {said(original[worst])} and then {said(retained[worst])}"
            )
        )
        said_of.append(f"{configuration.title} ({over(configuration)}): {text}")
        for what, spread in (("original", original), ("retained", retained)):
            values = [said(spread[task], "", missing="-") for task in range(len(spread.mean))]
            rows.append((configuration.title, what, *values))
    return Picture(
        "original-retained",
        "Original and retained accuracy",
        "Right after learning a task (filled) and after the last task (hatched): means over seeds, with one standard "
        "deviation. A bar that is missing was not measured.",
        "Accuracy on each task right after learning it, and after the last task. " + sentences(said_of),
        draw,
        Numbers(("configuration (%)", "", *[f"task {task}" for task in range(tasks)]), tuple(rows))
        if tasks <= 20
        else None,
    )


def _line(axes: Axes, spread: SampleSummary, configuration: Configuration, first: int = 0) -> None:
    """Mean and band over tasks from ``first`` on. A value between gaps is still seen: it has its marker."""
    places = np.arange(first, first + len(spread.mean))
    axes.plot(places, spread.mean, label=configuration.title, **configuration.style.plotted())
    low, high = spread.band
    if np.isfinite(spread.deviation).any():
        axes.fill_between(places, low, high, color=configuration.style.color, alpha=0.16, linewidth=0)


def _bars(axes: Axes, pair: tuple[SampleSummary, SampleSummary], shown: Sequence[int], color: str) -> None:
    looks: list[dict[str, Any]] = [
        {"facecolor": color, "edgecolor": color},
        {"facecolor": "none", "edgecolor": color, "hatch": "//////"},
    ]
    for side, spread, look in zip((-0.2, 0.2), pair, looks, strict=True):
        tasks = [task for task in shown if task < len(spread.mean) and math.isfinite(spread.mean[task])]
        places = [shown.index(task) + side for task in tasks]
        axes.bar(places, spread.mean[tasks], width=0.36, linewidth=1, **look)
        wide = np.nan_to_num(spread.deviation[tasks], nan=0.0)
        if wide.any():
            axes.errorbar(places, spread.mean[tasks], wide, fmt="none", ecolor=INK, elinewidth=0.9, capsize=2)


def _common_scale(axes: Sequence[Axes], spreads: Sequence[SampleSummary]) -> None:
    """From the tens below the lowest band to 100 percent."""
    low = min([float(np.nanmin(s.band[0])) for s in spreads if np.isfinite(s.mean).any()], default=0.0)
    bottom = max(0.0, 10 * math.floor(min(low, 89.9) / 10))
    margin = (100 - bottom) / 25
    axes[0].set_ylim(bottom - margin, 100 + margin)
    last = max([len(spread.mean) for spread in spreads], default=1) - 1
    axes[0].set_xlim(-0.3, last + 0.3)
    whole_numbers(axes[0].xaxis)


def _labels(configurations: Sequence[Configuration]) -> list[str]:
    return [legend_label(configuration.title) for configuration in configurations]


def _handles(configurations: Sequence[Configuration]) -> list[Any]:
    from matplotlib.lines import Line2D

    labels = _labels(configurations)
    return [Line2D([], [], label=label, **c.style.plotted()) for c, label in zip(configurations, labels, strict=True)]


def _matrix_numbers(configurations: Sequence[Configuration], spreads: Sequence[SampleSummary]) -> Numbers:
    tasks = max(len(spread.mean) for spread in spreads)
    rows = [
        (configuration.title, str(row), *[said(spread[row, task], "", missing="-") for task in range(tasks)])
        for configuration, spread in zip(configurations, spreads, strict=True)
        for row in range(len(spread.mean))
        if np.isfinite(spread.mean[row]).any()
    ]
    return Numbers(("configuration (%)", "after task", *[f"on task {task}" for task in range(tasks)]), tuple(rows))


def _evenly(count: int, most: int) -> list[int]:
    """At most ``most`` of 0 .. count - 1, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(step * (count - 1) / (most - 1)) for step in range(most)})
