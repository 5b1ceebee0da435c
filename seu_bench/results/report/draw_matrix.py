"""Heat maps of the accuracy matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from seu_bench.results.report.canvas import label_outer, panels, whole_numbers
from seu_bench.results.report.picture import Configuration, Picture, by_configuration
from seu_bench.results.report.styles import PAPER, short
from seu_bench.results.report.summary import accuracies

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Tasks up to which each square has its number in it.
MOST_NUMBERED = 10
#: Steps of the scale: squares of a heat map, and no shades that nobody can tell apart.
_STEPS = 20
#: Of the two inks within a square; neither is one that a dark page exchanges.
_LIGHT_INK, _DARK_INK = "#fdfdfd", "#0b0d10"


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
