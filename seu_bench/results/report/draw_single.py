"""Figures of one configuration: its learning curves, units found by search as graphs, and the units each task uses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch
from matplotlib.path import Path

from seu_bench.results.record import Record, StageRecord
from seu_bench.results.report import canvas
from seu_bench.results.report.canvas import INK, MUTED, PAPER, Picture, panels, short, style, whole_ticks, with_legend
from seu_bench.results.report.summary import Configuration, SeedSummary, over_seeds, sentences, task_name
from seu_bench.search_space import INPUTS, NODES, CellKind, Edge, Genotype

#: Colour and kind of line of each kind of operation, by the beginning of its name.
_ARCS: Final[dict[str, tuple[str, Any]]] = {
    "sep_conv": (canvas.BLUE, "solid"),
    "dil_conv": (canvas.VERMILLION, (0, (5, 1.5, 1, 1.5))),
    "max_pool": (canvas.GREEN, (0, (5, 2))),
    "avg_pool": (canvas.GREEN, (0, (2.5, 1.5))),
    "skip_con": (MUTED, (0, (1, 1.5))),
    "none": (canvas.FAINT, (0, (1, 3))),
    "": (INK, "solid"),
}
#: How units are drawn: marker, its size, colours of its face, its edge and the number in it, and words.
_USES: Final = {
    "new": ("s", 12, canvas.BLUE, INK, canvas.WHITE, "made for this task"),
    "reused": ("o", 12, canvas.ORANGE, INK, canvas.BLACK, "taken over from an earlier task"),
    "adapted": ("D", 11, canvas.GREEN, INK, canvas.BLACK, "taken and adapted"),
    "": ("s", 12, PAPER, canvas.FAINT, MUTED, "there, not used"),
}
#: Tasks with a line each, kinds of stages with a column each, epochs with a point each.
MOST_LINES, MOST_STAGES, MOST_EPOCHS = 10, 4, 5000
#: A path longer or wider than that is no picture any more.
MOST_LAYERS, MOST_UNITS, MOST_TASKS = 40, 40, 20
_OUTPUT: Final = INPUTS + NODES


def learning_curves(configuration: Configuration) -> Picture | None:
    """Loss and accuracy over the epochs of each kind of stage, a line for each task; ``None``: no record has any."""
    stages = _stages(configuration.runs)
    if not stages:
        return None
    tasks = sorted({task for of_tasks in stages.values() for task in of_tasks})
    shown = tasks[:MOST_LINES]

    def draw() -> Figure:
        columns = len(stages)
        titles = [short(kind, 30) for kind in stages] + [""] * columns
        figure, axes = panels(titles, columns, (2.9, 1.9), "epoch", "loss (per image)", shared=False)
        axes[columns].set_ylabel("accuracy (%)")
        for of_tasks, upper, lower in zip(stages.values(), axes[:columns], axes[columns:], strict=True):
            epochs = max(len(loss.mean) for loss, _ in of_tasks.values())
            for task in [task for task in shown if task in of_tasks]:
                look = style(task)
                for panel, summary in zip((upper, lower), of_tasks[task], strict=True):
                    marker = look.marker if len(summary.mean) == 1 else ""
                    summary.draw(panel, 1, 0.12, color=look.color, linestyle=look.line, marker=marker, linewidth=1.5)
            if epochs > 1:
                lower.set_xlim(0.95, epochs + 0.05)
                whole_ticks(lower.xaxis)
            else:
                lower.set_xlim(0.5, 1.5)
                lower.set_xticks([1])
        labels = [short(task_name(configuration.runs, task), 26, 1) for task in shown]
        looks = zip(labels, map(style, shown), strict=True)
        keys = [Line2D([], [], label=label, color=look.color, linestyle=look.line) for label, look in looks]
        return with_legend(figure, keys, 4 if max(map(len, labels)) < 16 else 3)

    texts = []
    for kind, of_tasks in stages.items():
        ends = [
            f"task {task} ends at loss {loss[-1].text('', 3)} and accuracy {accuracy[-1].text()}"
            for task, (loss, accuracy) in of_tasks.items()
            if task in shown
        ]
        texts.append(f"{kind}: {', '.join(ends)}")
    some = "" if len(shown) == len(tasks) else f" The first {len(shown)} of {len(tasks)} tasks are drawn."
    return Picture(
        f"learning-curves-{configuration.number}",
        f"Learning curves: {configuration.label}",
        f"Each epoch of each stage, on the images that it learns from, never on test images; means over "
        f"{configuration.seeds}, bands one standard deviation.{some}{_at_chance(configuration.runs)}",
        "Loss and accuracy over epochs. " + sentences(texts),
        draw,
    )


def _at_chance(runs: Sequence[Record]) -> str:
    """A sentence on the rewards of each kind of stage that guesses would have reached; empty: nobody measured any."""
    shares: defaultdict[str, list[float]] = defaultdict(list)
    for stage in (stage for run in runs for stage in run.stages):
        if stage.chance_share is not None:
            shares[stage.name].append(100 * stage.chance_share)
    said = ", ".join(f"{np.mean(values):.0f}% in {kind}" for kind, values in shares.items())
    return f" Rewards that guessing would reach: {said}." if said else ""


def _stages(runs: Sequence[Record]) -> dict[str, dict[int, tuple[SeedSummary, SeedSummary]]]:
    """Loss, and accuracy in percent, over epochs, by kind of stage and task."""
    found: defaultdict[str, defaultdict[int, list[StageRecord]]] = defaultdict(lambda: defaultdict(list))
    kinds: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
    for number, run in enumerate(runs):
        for stage in run.stages:
            kinds[number, stage.task].append(stage.name)
            if 0 < max(len(stage.losses), len(stage.accuracies)) <= MOST_EPOCHS:
                found[stage.name][stage.task].append(stage)
    # Kinds come as a task has them; not each task has all: the first one may lack some.
    fullest = max(kinds.values(), key=len, default=[])
    order = sorted(found, key=lambda kind: fullest.index(kind) if kind in fullest else len(fullest))
    complete = {
        kind: {task: _summaries(stages) for task, stages in sorted(found[kind].items()) if len(stages) == len(runs)}
        for kind in order[:MOST_STAGES]
    }
    return {kind: of_tasks for kind, of_tasks in complete.items() if of_tasks}


def _summaries(stages: Sequence[StageRecord]) -> tuple[SeedSummary, SeedSummary]:
    epochs = max(max(len(stage.losses), len(stage.accuracies)) for stage in stages)
    values = np.full((2, len(stages), epochs), np.nan)
    for row, stage in enumerate(stages):
        for place, measured in enumerate((stage.losses, stage.accuracies)):
            values[place, row, : len(measured)] = np.array(measured, dtype=float)
    return over_seeds(values[0]), over_seeds(100 * values[1])


def genotypes(configuration: Configuration, most: int) -> list[Picture]:
    """The unit found for each of the first ``most`` tasks of a configuration's example."""
    pictures = []
    for task, value in enumerate((configuration.example.genotypes or ())[:most]):
        try:
            genotype = Genotype.from_dict(value)
        except (ValueError, OverflowError):  # none, or outside the search space
            continue
        pictures.append(_unit(configuration, task, genotype))
    return pictures


def paths(configuration: Configuration) -> Picture | None:
    """The units of each layer that each task uses; ``None``: the example has no paths, or more than can be drawn."""
    run = configuration.example
    found, made = run.paths, run.unit_tasks
    if not found or not made or not _can_be_drawn(found, made):
        return None
    uses = [_uses(run, task, path, made) for task, path in enumerate(found)]

    def draw() -> Figure:
        highest = max(len(units) for units in made)
        width = max(2.0, 0.34 * len(made) + 0.25)
        columns = min(len(found), max(1, int(10.5 // width)))
        titles = [short(task_name([run], task), 26) for task in range(len(found))]
        figure, axes = panels(titles, columns, (width, 0.3 * highest + 0.75), "layer", "unit")
        for task, panel in enumerate(axes):
            _path(panel, task, found[task], made, uses[task])
        axes[0].set_xlim(-0.6, len(made) - 0.4)
        axes[0].set_ylim(-0.6, highest - 0.4)
        whole_ticks(axes[0].xaxis, axes[0].yaxis)
        shown = [use for use in _USES if use != "adapted" or run.choices is not None]
        return with_legend(figure, [Line2D([], [], label=_USES[use][-1], **_marked(use)) for use in shown], 4)

    texts = []
    for task, path in enumerate(found):
        steps = [f"{unit} {use}" for unit, use in zip(path, uses[task], strict=True)]
        texts.append(f"task {task} uses units {', '.join(steps)}")
    reused = sum(use != "new" for of_task in uses[1:] for use in of_task)
    steps_after = sum(len(path) for path in found[1:])
    return Picture(
        f"paths-{configuration.number}",
        f"Paths: {configuration.label}",
        f"Seed {run.seed}. A column for each layer and a square for each unit in it; the number is the task that the "
        "unit was made for. The line joins the units that the task uses.",
        f"Units that each of {len(found)} tasks uses in {len(made)} layers, from the input on. After task 0, {reused} "
        f"of {steps_after} units are taken over from earlier tasks. " + sentences(texts, 20),
        draw,
    )


def _unit(configuration: Configuration, task: int, genotype: Genotype) -> Picture:
    run = configuration.example
    kinds: list[CellKind] = ["normal"] if genotype.normal == genotype.reduction else ["normal", "reduction"]
    name = task_name([run], task)

    def draw() -> Figure:
        highest = max(edge.node - edge.source for kind in kinds for edge in genotype.edges(kind))
        figure, axes = panels([""] * len(kinds), 1, (7.6, 2.4))
        for panel, kind in zip(axes, kinds, strict=True):
            _cell(panel, genotype.edges(kind), highest)
            panel.set_title(f"{kind} cell" if len(kinds) > 1 else "cell", loc="left")
        return figure

    texts = [f"{kind} cell: {_in_words(genotype.edges(kind))}" for kind in kinds]
    return Picture(
        f"unit-{configuration.number}-task{task}",
        f"Unit found for {name}: {configuration.label}",
        f"Seed {run.seed}. Nodes 0 and 1 are the outputs of the two layers before; each other node is the sum of its "
        "arcs, and the output joins nodes 2 to 5.",
        f"The unit found for {name} as a graph. " + sentences(texts),
        draw,
    )


def _in_words(edges: Sequence[Edge]) -> str:
    parts = []
    for node in range(INPUTS, _OUTPUT):
        inputs = [f"{edge.operation} of node {edge.source}" for edge in edges if edge.node == node]
        parts.append(f"node {node} is {' plus '.join(inputs)}")
    return "; ".join(parts)


def _cell(axes: Axes, edges: Sequence[Edge], highest: int) -> None:
    """Draw nodes on a line and edges as arcs of distinct middle or height, so that operation names do not overlap."""
    axes.set_axis_off()
    axes.set_xlim(-0.4, _OUTPUT + 0.75)
    axes.set_ylim(-0.75, 0.52 * highest + 0.25)
    for edge in edges:
        color, line = next(arc for start, arc in _ARCS.items() if edge.operation.startswith(start))
        height = 0.52 * (edge.node - edge.source)
        start, end, lift = edge.source + 0.1, edge.node - 0.1, 0.17
        # A cubic curve rises to three quarters of the way to its control points.
        top = lift + (height - lift) / 0.75
        corners = [(start, lift), (start + 0.1, top), (end - 0.1, top), (end, lift)]
        curve = Path(corners, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])
        stroke = {"color": color, "linestyle": line, "linewidth": 1.5, "fill": False}
        axes.add_patch(FancyArrowPatch(path=curve, arrowstyle="-|>", mutation_scale=9, **stroke))
        middle, box = (edge.node + edge.source) / 2, {"facecolor": PAPER, "edgecolor": "none", "pad": 0.6}
        axes.text(middle, height, edge.operation, ha="center", va="center", fontsize=7.5, bbox=box)
    axes.plot([INPUTS, _OUTPUT + 0.1], [-0.45, -0.45], color=MUTED, linewidth=1)
    for node in range(_OUTPUT):
        if node >= INPUTS:
            axes.plot([node, node], [-0.45, -0.2], color=MUTED, linewidth=1)
        shape = "s" if node < INPUTS else "o"
        axes.plot([node], [0], shape, markersize=17, markerfacecolor=PAPER, markeredgecolor=INK, markeredgewidth=1.3)
        axes.text(node, 0, str(node), ha="center", va="center_baseline", fontweight="bold")
    axes.text(_OUTPUT + 0.15, -0.45, "output", ha="left", va="center_baseline", fontsize=8.5)
    for node, name in enumerate(("layer\nbefore last", "last\nlayer")):
        axes.text(node, -0.27, name, ha="center", va="top", fontsize=7, color=MUTED)


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


def _path(axes: Axes, task: int, path: Sequence[int], made: Sequence[Sequence[int]], uses: Sequence[str]) -> None:
    axes.grid(visible=False)
    axes.plot(range(len(path)), path, color=INK, linewidth=1.4, zorder=1)
    for layer, units in enumerate(made):
        for unit, maker in enumerate(units):
            if maker <= task:
                use = uses[layer] if path[layer] == unit else ""
                axes.plot([layer], [unit], **_marked(use))
                color = _USES[use][4]
                axes.text(layer, unit, str(maker), ha="center", va="center_baseline", fontsize=7, color=color)


def _marked(use: str) -> dict[str, Any]:
    marker, size, face, edge, *_ = _USES[use]
    shape = {"marker": marker, "markersize": size, "linestyle": "none"}
    return shape | {"markerfacecolor": face, "markeredgecolor": edge, "markeredgewidth": 0.8}
