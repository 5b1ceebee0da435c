"""Figures of one configuration: units found by search as graphs, and the units that each task uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch
from matplotlib.path import Path

from seu_bench.results.record import Record
from seu_bench.results.report import canvas
from seu_bench.results.report.basis import basis
from seu_bench.results.report.canvas import Picture, panels, small, whole_ticks, with_legend
from seu_bench.results.report.layout import FAINT, INK, MUTED, PAGE, PAPER, Layout
from seu_bench.results.report.summary import Configuration, sentences, task_name

#: Nodes of a cell that are its inputs, and those that it computes.
INPUTS, NODES = 2, 4

#: Colour and kind of line of each kind of operation, by the beginning of its name.
_ARCS: Final[dict[str, tuple[str, Any]]] = {
    "sep_conv": (canvas.BLUE, "solid"),
    "dil_conv": (canvas.VERMILLION, (0, (5, 1.5, 1, 1.5))),
    "max_pool": (canvas.GREEN, (0, (5, 2))),
    "avg_pool": (canvas.GREEN, (0, (2.5, 1.5))),
    "skip_con": (MUTED, (0, (1, 1.5))),
    "none": (FAINT, (0, (1, 3))),
    "": (INK, "solid"),
}
#: How units are drawn: marker, share of its size, colours of its face, its edge and the number in it, and words.
_USES: Final = {
    "new": ("s", 1.0, canvas.BLUE, INK, canvas.WHITE, "made for this task"),
    "reused": ("o", 1.0, canvas.ORANGE, INK, canvas.BLACK, "taken over from an earlier task"),
    "adapted": ("D", 0.9, canvas.GREEN, INK, canvas.BLACK, "taken and adapted"),
    "": ("s", 1.0, PAPER, FAINT, MUTED, "there, not used"),
}
#: A path longer or wider than that is no picture any more.
MOST_LAYERS, MOST_UNITS, MOST_TASKS = 40, 40, 20
#: Points of a unit's marker that has its number in it, at the least.
_LEAST_NUMBERED: Final = 7.5
#: Inches from node to node that leave room for the names of operations beside each other.
_ROOMY: Final = 0.75
_OUTPUT: Final = INPUTS + NODES


class Edge(NamedTuple):
    """An operation on the way from ``source`` to ``node``."""

    node: int
    source: int
    operation: str


def genotypes(configuration: Configuration, most: int) -> list[Picture]:
    """The unit found for each of the first ``most`` tasks of a configuration's example."""
    pictures = []
    for task, value in enumerate((configuration.example.genotypes or ())[:most]):
        try:
            genotype = {kind: _edges((value or {})[kind]) for kind in ("normal", "reduction")}
        except (KeyError, TypeError, ValueError, OverflowError):  # none, or nothing that can be drawn
            continue
        pictures.append(_unit(configuration, task, genotype))
    return pictures


def _edges(value: Any) -> tuple[Edge, ...]:
    """A form of a unit, as records have it."""
    edges = tuple(Edge(int(node), int(source), str(operation)) for node, source, operation in value)
    if not all(0 <= edge.source < edge.node and INPUTS <= edge.node < _OUTPUT for edge in edges) or {
        edge.node for edge in edges
    } != {*range(INPUTS, _OUTPUT)}:
        raise ValueError("edges of another cell")
    return edges


def paths(configuration: Configuration) -> Picture | None:
    """The units of each layer that each task uses; ``None``: the example has no paths, or more than can be drawn."""
    run = configuration.example
    found, made = run.paths, run.unit_tasks
    if not found or not made or not _can_be_drawn(found, made):
        return None
    uses = [_uses(run, task, path, made) for task, path in enumerate(found)]

    def draw(layout: Layout = PAGE) -> Figure:
        highest = max(len(units) for units in made)
        least, line, free = (2.0, 0.34, 0.25) if layout.width is None else (1.15, 0.2, 0.3)
        width, height = max(least, line * len(made) + free), 0.88 * line * highest + 0.75
        columns = min(len(found), max(1, int((layout.width or 10.5) // width)))
        if layout.width is not None:
            width = layout.width / columns
        titles = [task_name([run], task) for task in range(len(found))]
        figure, axes = panels(titles, columns, (width, height), "layer", "unit", layout=layout, keep=True)
        size = min(40 * line, 0.8 * 72 * (width - 0.45) / len(made)) if layout.width else 12.0
        for task, panel in enumerate(axes):
            _path(panel, task, found[task], made, uses[task], size)
        axes[0].set_xlim(-0.6, len(made) - 0.4)
        axes[0].set_ylim(-0.6, highest - 0.4)
        whole_ticks(axes[0].xaxis, axes[0].yaxis)
        shown = [use for use in _USES if use != "adapted" or run.choices is not None]
        return with_legend(figure, [Line2D([], [], label=_USES[use][-1], **_marked(use, 8)) for use in shown], 4)

    texts = []
    for task, path in enumerate(found):
        steps = [f"{unit} {use}" for unit, use in zip(path, uses[task], strict=True)]
        texts.append(f"task {task} uses units {', '.join(steps)}")
    reused = sum(use != "new" for of_task in uses[1:] for use in of_task)
    steps_after = sum(len(path) for path in found[1:])
    return Picture(
        f"paths-{configuration.number}",
        f"Paths: {configuration.label}",
        "A column for each layer and a square for each unit in it; the number is the task that the "
        "unit was made for. The line joins the units that the task uses." + basis([configuration], single_seed=True),
        f"Units that each of {len(found)} tasks uses in {len(made)} layers, from the input on. After task 0, {reused} "
        f"of {steps_after} units are taken over from earlier tasks. " + sentences(texts, 20),
        draw,
    )


def _unit(configuration: Configuration, task: int, genotype: dict[str, tuple[Edge, ...]]) -> Picture:
    run = configuration.example
    kinds = ["normal"] if genotype["normal"] == genotype["reduction"] else ["normal", "reduction"]
    name = task_name([run], task)

    def draw(layout: Layout = PAGE) -> Figure:
        highest = max(edge.node - edge.source for kind in kinds for edge in genotype[kind])
        size = (7.6, 2.4) if layout.width is None else (layout.width, 2.4)
        figure, axes = panels([""] * len(kinds), 1, size, layout=layout)
        for panel, kind in zip(axes, kinds, strict=True):
            _cell(panel, genotype[kind], highest, size[0])
            panel.set_title(f"{kind} cell" if len(kinds) > 1 else "cell", loc="left")
        return figure

    texts = [f"{kind} cell: {_in_words(genotype[kind])}" for kind in kinds]
    return Picture(
        f"unit-{configuration.number}-task{task}",
        f"Unit found for {name}: {configuration.label}",
        "Nodes 0 and 1 are the outputs of the two layers before; each other node is the sum of its "
        "arcs, and the output joins nodes 2 to 5." + basis([configuration], single_seed=True),
        f"The unit found for {name} as a graph. " + sentences(texts),
        draw,
    )


def _in_words(edges: Sequence[Edge]) -> str:
    parts = []
    for node in range(INPUTS, _OUTPUT):
        inputs = [f"{edge.operation} of node {edge.source}" for edge in edges if edge.node == node]
        parts.append(f"node {node} is {' plus '.join(inputs)}")
    return "; ".join(parts)


def _cell(axes: Axes, edges: Sequence[Edge], highest: int, inches: float) -> None:
    """Draw nodes on a line and edges as arcs of distinct middle or height, so that operation names do not overlap.

    In a narrow figure arcs from nodes of odd number are higher, so that names have room beside each other.
    """
    roomy = inches / (_OUTPUT + 1.15) >= _ROOMY
    raised, right, low = (0.0, 0.75, 0.75) if roomy else (0.24, 1.15, 0.95)
    axes.set_axis_off()
    axes.set_xlim(-0.4, _OUTPUT + right)
    axes.set_ylim(-low, 0.52 * highest + 0.25 + raised)
    for edge in edges:
        color, line = next(arc for start, arc in _ARCS.items() if edge.operation.startswith(start))
        height = 0.52 * (edge.node - edge.source) + raised * (edge.source % 2)
        start, end, lift = edge.source + 0.1, edge.node - 0.1, 0.17
        # A cubic curve rises to three quarters of the way to its control points.
        top = lift + (height - lift) / 0.75
        corners = [(start, lift), (start + 0.1, top), (end - 0.1, top), (end, lift)]
        curve = Path(corners, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])
        stroke = {"color": color, "linestyle": line, "linewidth": 0.85 * rcParams["lines.linewidth"], "fill": False}
        axes.add_patch(FancyArrowPatch(path=curve, arrowstyle="-|>", mutation_scale=9, **stroke))
        middle, box = (edge.node + edge.source) / 2, {"facecolor": PAPER, "edgecolor": "none", "pad": 0.6}
        axes.text(middle, height, edge.operation, ha="center", va="center", fontsize=min(7.5, small()), bbox=box)
    axes.plot([INPUTS, _OUTPUT + 0.1], [-0.45, -0.45], color=MUTED, linewidth=1)
    for node in range(_OUTPUT):
        if node >= INPUTS:
            axes.plot([node, node], [-0.45, -0.2], color=MUTED, linewidth=1)
        look: dict[str, Any] = {"markersize": 17 if roomy else 14, "markerfacecolor": PAPER, "markeredgecolor": INK}
        axes.plot([node], [0], "s" if node < INPUTS else "o", markeredgewidth=1.3, **look)
        axes.text(node, 0, str(node), ha="center", va="center_baseline", fontweight="bold")
    axes.text(_OUTPUT + 0.15, -0.45, "output", ha="left", va="center_baseline", fontsize=small())
    for node, name in enumerate(("layer\nbefore last" if roomy else "layer\nbefore\nlast", "last\nlayer")):
        axes.text(node, -0.27, name, ha="center", va="top", fontsize=min(7.0, small()), color=MUTED)


def _can_be_drawn(found: Sequence[Sequence[int]], made: Sequence[Sequence[int]]) -> bool:
    """Whether paths fit the units, and both fit into a picture. Records may hold anything."""
    if len(found) > MOST_TASKS or len(made) > MOST_LAYERS or any(len(units) > MOST_UNITS for units in made):
        return False
    return all(
        len(path) == len(made) and all(0 <= unit < len(units) for unit, units in zip(path, made, strict=True))
        for path in found
    )


def _uses(run: Record, task: int, path: Sequence[int], made: Sequence[Sequence[int]]) -> list[str]:
    """Use of a task's unit of each layer: ``new``, ``reused`` or ``adapted``."""
    uses = ["new" if units[unit] == task else "reused" for unit, units in zip(path, made, strict=True)]
    chosen = run.choices[task] if run.choices is not None and task < len(run.choices) else ()
    for layer, choice in enumerate(chosen[: len(uses)]):
        if choice.startswith("adapt"):
            uses[layer] = "adapted"
    return uses


def _path(
    axes: Axes, task: int, path: Sequence[int], made: Sequence[Sequence[int]], uses: Sequence[str], size: float
) -> None:
    axes.grid(visible=False)
    axes.plot(range(len(path)), path, color=INK, linewidth=1.4, zorder=1)
    for layer, units in enumerate(made):
        for unit, maker in enumerate(units):
            if maker <= task:
                use = uses[layer] if path[layer] == unit else ""
                axes.plot([layer], [unit], **_marked(use, size))
                if size >= _LEAST_NUMBERED:
                    color = _USES[use][4]
                    axes.text(layer, unit, str(maker), ha="center", va="center_baseline", fontsize=7, color=color)


def _marked(use: str, size: float) -> dict[str, Any]:
    marker, share, face, edge, *_ = _USES[use]
    shape = {"marker": marker, "markersize": share * size, "linestyle": "none"}
    return shape | {"markerfacecolor": face, "markeredgecolor": edge, "markeredgewidth": 0.8}
