"""The figure of accuracy against size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

from seu_bench.metrics import mixed_score
from seu_bench.results.record_metrics import FLOAT_BYTES
from seu_bench.results.report.basis import basis
from seu_bench.results.report.canvas import Picture, marker_size, panels, percent_scale, small, with_legend
from seu_bench.results.report.layout import MUTED, PAGE, Layout
from seu_bench.results.report.references import hollow, reference_lines, what_references_are
from seu_bench.results.report.summary import Configuration, Published, sentences

#: Mixed scores that have a line.
_LEVELS = tuple(level / 20 for level in range(2, 18))
#: Room of a label beside the axes' width and height, in a narrow figure.
_LABEL: Final = (0.11, 0.08)


class Size(NamedTuple):
    """A size to draw accuracy against: its metric, its name, what it counts, and how many make a number."""

    metric: str
    name: str
    unit: str
    label: str
    per_number: int = 1


PARAMETERS: Final = Size("params_total", "parameters", "parameters", "parameters stored after the last task")
MEMORY: Final = Size("memory_bytes", "memory", "bytes", "bytes kept after the last task", FLOAT_BYTES)


def accuracy_against_size(
    configurations: Sequence[Configuration],
    published: Sequence[Published] = (),
    references: Sequence[Configuration] = (),
    against: Size = PARAMETERS,
) -> Picture:
    """Final accuracy over a size, with lines of equal mixed score; references are hollow."""
    both = (*configurations, *references)
    points = [(each, each.metric("acc", 100), each.metric(against.metric)) for each in both]
    drawn = [(c, a, n) for c, a, n in points if math.isfinite(float(a.mean)) and float(n.mean) > 0]

    def draw(layout: Layout = PAGE) -> Figure:
        labels = against.label, "average accuracy after the last task (%)"
        figure, (axes,) = panels([""], 1, (7.5, 4.4), *labels, layout=layout)
        axes.set_xscale("log")
        handles = []
        for each, accuracy, size in drawn:
            x, y = float(size.mean), float(accuracy.mean)
            up, across = (None if math.isnan(s.std) else float(s.std) for s in (accuracy, size))
            axes.errorbar(
                x,
                y,
                up,
                across,
                fmt="none",
                ecolor=each.style.color,
                elinewidth=1,
                capsize=marker_size(0.45),
            )
            if each in references:
                axes.plot([x], [y], **hollow(each))
                continue
            look = each.style.plotted() | {"linestyle": "none"}
            look["markersize"] *= 1.4
            handles += axes.plot([x], [y], label=each.named(layout), **look)
        handles += reference_lines(axes, references, layout)
        for known in published:
            look = known.style.plotted() | {"linestyle": "none", "markerfacecolor": "none"}
            look |= {"markeredgecolor": known.style.color, "markeredgewidth": 1.3, "markersize": marker_size(1.4)}
            handles += axes.plot([known.parameters], [known.accuracy], label=f"the paper's {known.label}", **look)
        competing = [(float(n.mean), float(a.mean)) for each, a, n in drawn if each not in references]
        _scale(axes, [float(n.mean) for _, _, n in drawn] + [known.parameters for known in published])
        values = [float(a.low) for _, a, _ in drawn] + [known.accuracy for known in published]
        percent_scale(axes, min(values, default=100.0))
        _levels(axes, against.per_number)
        _front(axes, competing)
        return with_legend(figure, handles, 2) if handles else figure

    texts = [f"{c.title} ({c.seeds}): {a.text()} with {n.text(f' {against.unit}', 0)}" for c, a, n in points]
    texts += [f"the paper's {p.label}: {p.accuracy:.2f} % with {p.parameters:,.0f} parameters" for p in published]
    rows = [(c.title, a.text("", 2, "-"), n.text("", 0, "-")) for c, a, n in points]
    papers = " Hollow markers in colours are the paper's own results." if published else ""
    return Picture(
        f"accuracy-{against.name}",
        f"Accuracy against {against.name}",
        "Further left and higher is better; steps are the front of those drawn: nothing is above it or left of it. "
        "Means over seeds with one standard deviation (n - 1); thin dashed lines join equal mixed scores, named "
        f"by these.{papers}{what_references_are(references)}{basis(both)}",
        f"Average accuracy after the last task against the {against.label}, on a logarithmic scale. "
        + sentences(texts),
        draw,
        [("configuration", "accuracy (%)", against.unit), *rows],
    )


def _front(axes: Axes, points: Sequence[tuple[float, float]]) -> None:
    """Draw steps along the points, size and accuracy, than which no other is smaller and as accurate, to the right."""
    front: list[tuple[float, float]] = []
    for size, accuracy in sorted(points, key=lambda point: (point[0], -point[1])):
        if not front or accuracy > front[-1][1]:
            front.append((size, accuracy))
    if front:
        sizes, accuracies = zip(*front, (axes.get_xlim()[1], front[-1][1]), strict=True)
        axes.step(sizes, accuracies, where="post", color=MUTED, linewidth=1.2, zorder=0.8)


def _scale(axes: Axes, sizes: Sequence[float]) -> None:
    low, high = math.log10(min(sizes, default=1e5)), math.log10(max(sizes, default=1e6))
    margin = max(0.25, (high - low) / 12)
    axes.set_xlim(10 ** (low - margin), 10 ** (high + margin))
    steps = (1.0,) if high - low > 2 else (1.0, 2.0, 5.0)
    axes.xaxis.set_major_locator(LogLocator(subs=steps, numticks=12))
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())


def _levels(axes: Axes, per_number: int) -> None:
    """Draw thin lines of equal mixed score, labelled where they begin; so many units of size make a number.

    A label that would lie on another is left out.
    """
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    sizes = np.geomspace(left, right, 200)
    smallness = np.array([mixed_score(100, round(size / per_number)) for size in sizes])
    look: dict[str, Any] = {"color": MUTED, "linewidth": 0.7, "linestyle": (0, (4, 3)), "zorder": 0.5}
    labelled: list[tuple[float, float]] = []
    for level in _LEVELS:
        accuracy = 100 * (level / smallness) ** 2  # the score is sqrt(a) / 10 times what depends on the size
        inside = np.flatnonzero((accuracy >= max(bottom, 0)) & (accuracy <= 100))
        if len(inside) < 4:
            continue
        axes.plot(sizes[inside], accuracy[inside], **look)
        begins = inside[0]  # at the left or at the bottom, where models are few
        across, up = begins / len(sizes), float((accuracy[begins] - bottom) / (top - bottom))
        offset, ha, va = ((4, -2), "left", "top") if begins == 0 else ((-4, 2), "right", "bottom")
        if 0 < across < _LABEL[0]:  # no room left of it
            offset, ha = (3, 2), "left"
        across -= 0.0 if ha == "left" else _LABEL[0]
        if any(abs(across - x) < _LABEL[0] and abs(up - y) < _LABEL[1] for x, y in labelled):
            continue
        labelled.append((across, up))
        place, size = (float(sizes[begins]), float(accuracy[begins])), min(7.0, small())
        text: dict[str, Any] = {"textcoords": "offset points", "fontsize": size, "color": MUTED}
        axes.annotate(f"{level:.2f}", place, offset, ha=ha, va=va, **text)
