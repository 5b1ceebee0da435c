"""References in figures: lines across at their accuracy, and hollow markers, in grey; nothing that competes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from seu_bench.results.reference_rows import reference_of
from seu_bench.results.report.canvas import marker_size
from seu_bench.results.report.layout import Layout
from seu_bench.results.report.summary import Configuration


def hollow(each: Configuration) -> dict[str, Any]:
    """Keywords of matplotlib for the marker of a reference."""
    look = each.style.plotted() | {"linestyle": "none", "markerfacecolor": "none", "markersize": marker_size(1.4)}
    return look | {"markeredgecolor": each.style.color, "markeredgewidth": 1.2}


def reference_lines(axes: Axes, references: Sequence[Configuration], layout: Layout) -> list[Line2D]:
    """Draw a line across at each reference's final accuracy, below all else; return the legend's handles."""
    handles = []
    for each in references:
        accuracy = float(each.metric("acc", 100).mean)
        if math.isfinite(accuracy):
            look: dict[str, Any] = {"color": each.style.color, "linestyle": each.style.line}
            look["linewidth"] = 0.6 * rcParams["lines.linewidth"]
            axes.axhline(accuracy, zorder=0.8, **look)
            handles.append(Line2D([], [], label=each.named(layout), **hollow(each) | look))
    return handles


def final_accuracies(references: Sequence[Configuration]) -> list[float]:
    """Final accuracies in percent, as far as they were measured: a scale has to hold them."""
    found = [float(each.metric("acc", 100).mean) for each in references]
    return [accuracy for accuracy in found if math.isfinite(accuracy)]


def what_references_are(references: Sequence[Configuration]) -> str:
    """A sentence for a caption that says what each reference is; empty where there is none."""
    if not references:
        return ""
    texts = "; ".join(f"{each.label}: {reference_of(each.example)}" for each in references)
    return f" Grey lines across are references, which compete with nobody ({texts})."
