"""Accuracy against size: who reaches most with the fewest parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

from seu_bench.metrics import mixed_score
from seu_bench.results.report.canvas import legend_below, panels, percent_scale
from seu_bench.results.report.picture import MUTED, Configuration, Picture, Style, legend_label, sentences
from seu_bench.results.report.summary import SeedSummary, metric

#: Mixed scores that have a line.
_LEVELS = tuple(level / 20 for level in range(2, 18))


class Published(NamedTuple):
    """A result of the paper: accuracy in percent, parameters stored, and how the strategy's own is drawn."""

    label: str
    accuracy: float
    parameters: float
    style: Style


def accuracy_against_size(configurations: Sequence[Configuration], published: Sequence[Published] = ()) -> Picture:
    """Final accuracy over the number of parameters, with lines of equal mixed score."""
    points = [(each, metric(each.runs, "acc", 100), metric(each.runs, "params_total")) for each in configurations]
    drawn = [(c, a, n) for c, a, n in points if math.isfinite(float(a.mean)) and float(n.mean) > 0]

    def draw() -> Figure:
        figure, (axes,) = panels(1, 1, (7.5, 4.4))
        axes.set_xscale("log")
        handles = [_point(axes, *point) for point in drawn]
        for known in published:
            look = known.style.plotted() | {"linestyle": "none", "markerfacecolor": "none", "markersize": 9}
            look |= {"markeredgecolor": known.style.color, "markeredgewidth": 1.6}
            handles += axes.plot([known.parameters], [known.accuracy], label=f"the paper's {known.label}", **look)
        _scale(axes, [float(n.mean) for _, _, n in drawn] + [known.parameters for known in published])
        values = [float(a.band[0]) for _, a, _ in drawn] + [known.accuracy for known in published]
        percent_scale(axes, min(values, default=100.0))
        _levels(axes)
        axes.set_xlabel("parameters stored after the last task")
        axes.set_ylabel("average accuracy after the last task (%)")
        if handles:
            legend_below(figure, handles, 2)
        return figure

    texts = [f"{c.title} ({c.seeds}): {a.text()} with {n.text(' parameters', 0)}" for c, a, n in points]
    texts += [f"the paper's {p.label}: {p.accuracy:.2f} % with {p.parameters:,.0f} parameters" for p in published]
    rows = [(c.title, a.text("", 2, "-"), n.text("", 0, "-")) for c, a, n in points]
    hollow = " Hollow markers are the paper's own results." if published else ""
    return Picture(
        "accuracy-parameters",
        "Accuracy against parameters",
        "Further left and higher is better. Means over seeds with one standard deviation; thin lines join equal mixed "
        f"scores, which they are named by.{hollow}",
        "Average accuracy after the last task against the number of parameters, on a logarithmic scale. "
        + sentences(texts),
        draw,
        [("configuration", "accuracy (%)", "parameters"), *rows],
    )


def _point(axes: Axes, configuration: Configuration, accuracy: SeedSummary, size: SeedSummary) -> Any:
    style, x, y = configuration.style, float(size.mean), float(accuracy.mean)
    up, across = (None if math.isnan(float(s.std)) else float(s.std) for s in (accuracy, size))
    axes.errorbar(x, y, up, across, fmt="none", ecolor=style.color, elinewidth=1, capsize=3)
    look = style.plotted() | {"linestyle": "none", "markersize": 9}
    (point,) = axes.plot([x], [y], label=legend_label(configuration.title), **look)
    return point


def _scale(axes: Axes, sizes: Sequence[float]) -> None:
    low, high = math.log10(min(sizes, default=1e5)), math.log10(max(sizes, default=1e6))
    margin = max(0.25, (high - low) / 12)
    axes.set_xlim(10 ** (low - margin), 10 ** (high + margin))
    steps = (1.0,) if high - low > 2 else (1.0, 2.0, 5.0)
    axes.xaxis.set_major_locator(LogLocator(subs=steps, numticks=12))
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())


def _levels(axes: Axes) -> None:
    """Draw thin lines of equal mixed score, labelled where they begin."""
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
        offset, ha, va = ((4, -2), "left", "top") if begins == 0 else ((-4, 2), "right", "bottom")
        place = (float(sizes[begins]), float(accuracy[begins]))
        axes.annotate(f"{level:.2f}", place, offset, textcoords="offset points", ha=ha, va=va, fontsize=7, color=MUTED)
