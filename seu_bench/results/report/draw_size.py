"""Accuracy against size: who reaches most with the fewest parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from seu_bench.metrics import mixed_score
from seu_bench.results.report.canvas import Margins, legend_below, legend_height, panels
from seu_bench.results.report.picture import Configuration, Numbers, Picture, over, sentences
from seu_bench.results.report.styles import MUTED, Style, legend_label
from seu_bench.results.report.summary import SampleSummary, metric, said

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Mixed scores that have a line.
_LEVELS = tuple(level / 20 for level in range(2, 18))


@dataclass(frozen=True)
class Published:
    """A result of the paper: accuracy in percent, parameters stored, and how the strategy's own is drawn."""

    label: str
    accuracy: float
    parameters: float
    style: Style


def accuracy_against_size(configurations: Sequence[Configuration], published: Sequence[Published] = ()) -> Picture:
    """Final accuracy over the number of parameters, with lines of equal mixed score."""
    points = [
        (configuration, metric(configuration.runs, "acc", 100), metric(configuration.runs, "params_total"))
        for configuration in configurations
    ]
    drawn = [(c, a, n) for c, a, n in points if math.isfinite(float(a.mean)) and float(n.mean) > 0]

    def draw() -> Figure:
        labels = [legend_label(c.title) for c, _, _ in drawn] + [f"the paper's {known.label}" for known in published]
        below = legend_height(labels, 2)
        figure, (axes,) = panels(1, 1, (6.6, 3.8), Margins(top=0.12, bottom=0.46), below)
        axes.set_xscale("log")
        handles = [_point(axes, *point) for point in drawn]
        for known in published:
            look = known.style.plotted() | {"linestyle": "none", "markerfacecolor": "none", "markersize": 9}
            look |= {"markeredgecolor": known.style.color, "markeredgewidth": 1.6}
            handles += axes.plot([known.parameters], [known.accuracy], label=f"the paper's {known.label}", **look)
        sizes = [float(n.mean) for _, _, n in drawn] + [known.parameters for known in published]
        values = [float(a.band[0]) for _, a, _ in drawn] + [known.accuracy for known in published]
        _scale(axes, sizes, values)
        _levels(axes)
        axes.set_xlabel("parameters stored after the last task")
        axes.set_ylabel("average accuracy after the last task (%)")
        if handles:
            legend_below(figure, handles, 2)
        return figure

    said_of = [
        f"{configuration.title} ({over(configuration)}): {said(accuracy)} with {said(size, ' parameters', 0)}"
        for configuration, accuracy, size in points
    ]
    said_of += [f"the paper's {p.label}: {p.accuracy:.2f} % with {p.parameters:,.0f} parameters" for p in published]
    rows = tuple((c.title, said(a, "", 2, "-"), said(n, "", 0, "-")) for c, a, n in points)
    hollow = " Hollow markers are the paper's own results." if published else ""
    return Picture(
        "accuracy-parameters",
        "Accuracy against parameters",
        "Further left and higher is better. Means over seeds with one standard deviation; thin lines join equal mixed "
        f"scores, which they are named by.{hollow}",
        "Average accuracy after the last task against the number of parameters, on a logarithmic scale. "
        + sentences(said_of),
        draw,
        Numbers(("configuration", "accuracy (%)", "parameters"), rows),
    )


def _point(axes: Axes, configuration: Configuration, accuracy: SampleSummary, size: SampleSummary) -> Any:
    style = configuration.style
    bars = [None if math.isnan(float(s.deviation)) else float(s.deviation) for s in (accuracy, size)]
    axes.errorbar(
        float(size.mean),
        float(accuracy.mean),
        bars[0],
        bars[1],
        fmt="none",
        ecolor=style.color,
        elinewidth=1,
        capsize=3,
    )
    look = style.plotted() | {"linestyle": "none", "markersize": 9}
    (point,) = axes.plot([float(size.mean)], [float(accuracy.mean)], label=legend_label(configuration.title), **look)
    return point


def _scale(axes: Axes, sizes: Sequence[float], values: Sequence[float]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low = min([math.log10(size) for size in sizes], default=5.0)
    high = max([math.log10(size) for size in sizes], default=6.0)
    margin = max(0.25, (high - low) / 12)
    axes.set_xlim(10 ** (low - margin), 10 ** (high + margin))
    bottom = max(0.0, 10 * math.floor(min([*values, 89.9]) / 10))
    axes.set_ylim(bottom - (100 - bottom) / 25, 100 + (100 - bottom) / 25)
    steps = (1.0,) if high - low > 2 else (1.0, 2.0, 5.0)
    axes.xaxis.set_major_locator(LogLocator(subs=steps, numticks=12))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: in_short(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _levels(axes: Axes) -> None:
    """Thin lines of equal mixed score, named where they begin."""
    (left, right), (bottom, _) = axes.get_xlim(), axes.get_ylim()
    sizes = np.geomspace(left, right, 200)
    smallness = np.array([mixed_score(100, round(size)) for size in sizes])
    for level in _LEVELS:
        accuracy = 100 * (level / smallness) ** 2  # the score is sqrt(a) / 10 times what depends on the size
        inside = np.flatnonzero((accuracy >= max(bottom, 0)) & (accuracy <= 100))
        if len(inside) < 4:
            continue
        axes.plot(sizes[inside], accuracy[inside], color=MUTED, linewidth=0.7, linestyle=(0, (4, 3)), zorder=0.5)
        begins = inside[0]  # at the left or at the bottom, where models are few
        axes.annotate(
            f"{level:.2f}",
            (float(sizes[begins]), float(accuracy[begins])),
            (4, -2) if begins == 0 else (-4, 2),
            textcoords="offset points",
            ha="left" if begins == 0 else "right",
            va="top" if begins == 0 else "bottom",
            fontsize=7,
            color=MUTED,
        )


def in_short(value: float) -> str:
    """``20 k``, ``3.5 M``: a number of parameters beside an axis."""
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size * 0.9999:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"
