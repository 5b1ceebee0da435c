"""Heat maps of the accuracy matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from seu_bench.results.report.canvas import Margins, label_outer, panels, whole_numbers
from seu_bench.results.report.picture import Configuration, Picture, over, sentences
from seu_bench.results.report.styles import PAPER, short
from seu_bench.results.report.summary import Values, accuracies, said

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Tasks up to which each square has its number in it.
MOST_NUMBERED = 10
#: Steps of the scale: squares of a heat map, and no shades that nobody can tell apart.
_STEPS = 20
#: Of the two inks within a square; neither is one that a dark page exchanges.
_LIGHT_INK, _DARK_INK = "#fdfdfd", "#0b0d10"


def heat_maps(configurations: Sequence[Configuration]) -> Picture:
    """The accuracy on each task after each task, a panel for each configuration."""
    spreads = [accuracies(configuration.runs) for configuration in configurations]

    def draw() -> Figure:
        from matplotlib import colormaps
        from matplotlib.colors import BoundaryNorm

        columns = min(4, len(configurations))
        margins = Margins(top=0.46, right=0.95, down=0.55)
        figure, axes = panels(len(configurations), columns, (2.1, 2.1), margins)
        norm = BoundaryNorm(np.linspace(0, 100, _STEPS + 1), _STEPS)
        colors = colormaps["cividis"].resampled(_STEPS)
        for panel, configuration, spread in zip(axes, configurations, spreads, strict=True):
            tasks = len(spread.mean)
            edges = np.arange(tasks + 1) - 0.5
            mesh = panel.pcolormesh(
                edges, edges, np.ma.masked_invalid(spread.mean), cmap=colors, norm=norm, edgecolors=PAPER, linewidth=0.6
            )
            if tasks <= MOST_NUMBERED:
                _number(panel, spread.mean)
            panel.set_title(short(configuration.title, 27))
            panel.set_aspect("equal")
            panel.grid(visible=False)
        largest = max(len(spread.mean) for spread in spreads)
        axes[0].set_xlim(-0.5, largest - 0.5)
        axes[0].set_ylim(largest - 0.5, -0.5)
        whole_numbers(axes[0].xaxis, axes[0].yaxis)
        label_outer(figure, axes, columns, "accuracy on task", "after learning task")
        width, height = figure.get_size_inches()
        right = axes[columns - 1].get_position().x1
        place = (right + 0.15 / width, 1 - (margins.top + 2.1) / height, 0.16 / width, 2.1 / height)
        bar = figure.colorbar(mesh, cax=figure.add_axes(place), ticks=[0, 20, 40, 60, 80, 100])
        bar.set_label("accuracy (%)")
        bar.ax.minorticks_off()
        bar.ax.grid(visible=False)
        return figure

    said_of = []
    for configuration, spread in zip(configurations, spreads, strict=True):
        last = ", ".join(said(spread[-1, task], "") for task in range(min(len(spread.mean), 10)))
        learned = ", ".join(said(spread[task, task], "") for task in range(min(len(spread.mean), 10)))
        said_of.append(
            f"{configuration.title} ({over(configuration)}): diagonal, each task when learned, {learned}; "
            f"last row, at the end, {last}"
        )
    return Picture(
        "heat-maps",
        "Accuracy matrix",
        "R[i][j], the accuracy on task j after learning task i, mean over seeds; brighter is better. Only the lower "
        "triangle is measured: what is blank was not.",
        "Heat maps of the accuracy in percent on each task after each task. " + sentences(said_of),
        draw,
    )


def _number(axes: Axes, values: Values) -> None:
    size = 8 if len(values) <= 6 else 5.5
    for row, task in zip(*np.nonzero(np.isfinite(values)), strict=True):
        value = values[row, task]
        ink = _DARK_INK if value >= 50 else _LIGHT_INK
        axes.text(task, row, f"{value:.0f}", ha="center", va="center", fontsize=size, color=ink)
