"""``seu-bench genotypes``: pictures of the genotypes that a run found, drawn by matplotlib."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import click
import matplotlib
from matplotlib.figure import Figure

from seu_bench.cli.options import output_path, request_command
from seu_bench.config.common_options import SpaceOptions
from seu_bench.config.options import build_options
from seu_bench.engine.resolve import find_space
from seu_bench.errors import RequestError
from seu_bench.plugin.registry import Registry, use_plugins
from seu_bench.results.record import Record
from seu_bench.results.record_files import find_record
from seu_bench.utils.files import write_atomic
from seu_bench_kit import Arrow
from seu_bench_kit.search_space import make_space

#: Inches of a letter, of a row, of the gap between columns, and around everything; points of a text.
LETTER, ROW, GAP, MARGIN, SIZE = 0.085, 0.32, 0.4, 0.25, 9
STYLE: Final[Any] = {"svg.fonttype": "none", "svg.hashsalt": "seu-bench", "pdf.fonttype": 42, "text.parse_math": False}
#: What no file may hold, so that the same pictures are the same bytes.
DATES = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}


#: A node by its name, an operation by its index, or the way between two of them through a column.
Item: TypeAlias = Any


class Box(NamedTuple):
    """A text from ``x`` to ``right``, in inches, in row ``y``: a node, an operation, or where a line passes."""

    text: str
    x: float
    right: float
    y: int
    is_node: bool


@request_command("results", "plugin")
@click.argument("run", metavar="RUN")
@click.option("--task", type=click.IntRange(min=0), help="Index of a task, from 0 [default: all].")
@click.option("-o", "--output", type=output_path, metavar="FILE", help="SVG, PDF or PNG [default: RUN.svg].")
def genotypes(run: str, task: int | None, output: Path | None, results: Path, plugin: tuple[Path, ...]) -> None:
    """Draw the genotypes that a run found.

    RUN is a run id, a unique prefix of one, or the run's folder. What several tasks have is drawn once.
    """
    registry, record = use_plugins(plugin), find_record(results, run)
    path = output or Path(f"{record.run_id}.svg")
    if (form := path.suffix[1:].lower()) not in DATES:
        what, remedy = f"nothing is drawn as {path.suffix or 'a file without suffix'}", "end it in .svg, .pdf or .png"
        raise RequestError(what, where=f"--output {path}", remedy=remedy)
    write_atomic(path, render(pictures(registry, record, task), form))
    click.echo(str(path))


def pictures(registry: Registry, record: Record, task: int | None = None) -> dict[str, Sequence[Arrow]]:
    """The graphs of a record's genotypes by their titles, which name the tasks."""
    found = record.genotypes or ()
    kind = registry.strategies.find(record.strategy).factory.options
    if not issubclass(kind, SpaceOptions) or not found:
        raise RequestError(f"run {record.run_id} found no genotype", remedy="name a run of strategy 'seu'")
    if task is not None and task >= len(found):
        what, remedy = f"run {record.run_id} has no genotype of task {task}", f"give one from 0 to {len(found) - 1}"
        raise RequestError(what, where="--task", remedy=remedy)
    options = build_options(kind, f"strategy {record.strategy!r}", record.options)
    space, tasks = make_space(options, find_space(registry, options)), defaultdict[str, list[int]](list)
    for index in range(len(found)) if task is None else [task]:
        tasks[json.dumps(found[index])].append(index)
    return {
        f"{name}, task{'s' * (len(which) > 1)} {', '.join(map(str, which))}": arrows
        for text, which in tasks.items()
        for name, arrows in space.draw(space.from_dict(json.loads(text))).items()
    }


def render(graphs: Mapping[str, Sequence[Arrow]], form: str) -> bytes:
    """Draw graphs one below another.

    Args:
        graphs: arrows by title, without cycles.
        form: ``svg``, ``pdf`` or ``png``.
    """
    placed = {title: place(arrows) for title, arrows in graphs.items()}
    rows = {title: max(box.y for box in boxes) + 3 for title, (boxes, _) in placed.items()}
    width = max(box.right for boxes, _ in placed.values() for box in boxes)
    size = 2 * MARGIN + max(width, *(LETTER * len(title) for title in graphs)), ROW * sum(rows.values())
    with matplotlib.rc_context(STYLE):
        figure, top = Figure(figsize=size), 0.5
        axes = figure.add_axes((0, 0, 1, 1), xlim=(-MARGIN, size[0] - MARGIN), ylim=(sum(rows.values()), 0))
        axes.axis("off")
        for title, (boxes, lines) in placed.items():
            axes.text(0, top, title, fontsize=SIZE + 1, fontweight="bold", va="center")
            for boxes_passed in lines:
                points = [(x, top + 1.5 + it.y) for it in boxes_passed for x in (it.x, it.right)][1:-1]
                axes.plot(*zip(*points, strict=True), color="#8a949c", linewidth=1, zorder=1)
                arrow: Any = {"arrowstyle": "-|>", "color": "#8a949c", "shrinkA": 0, "shrinkB": 0}
                axes.annotate("", points[-1], points[-2], arrowprops=arrow)
            for box in filter(lambda it: it.text, boxes):
                edge, face = ("#4a5560", "#e3edf7") if box.is_node else ("none", "w")
                frame = {"boxstyle": "round,pad=0.25", "facecolor": face, "edgecolor": edge}
                middle = (box.x + box.right) / 2, top + 1.5 + box.y
                axes.text(*middle, box.text, fontsize=SIZE, ha="center", va="center", bbox=frame)
            top += rows[title]
        file = io.BytesIO()
        figure.savefig(file, format=form, metadata=DATES[form], dpi=150)
    return file.getvalue()


def place(arrows: Sequence[Arrow]) -> tuple[list[Box], list[list[Box]]]:
    """Boxes of nodes and of operations, in columns by the longest way to them, and the boxes that each line passes.

    A line has a box without text in the columns between its ends, so that it lies on no other.
    """
    ends: list[tuple[Item, Item]] = []
    for index, (source, target, operation) in enumerate(arrows):
        ends += [(source, index), (index, target)] if operation else [(source, target)]
    graph: dict[Item, list[Item]] = {it: [] for pair in ends for it in pair}
    for one, other in ends:
        graph[other].append(one)
    column: dict[Item, int] = {}
    for it in TopologicalSorter(graph).static_order():
        column[it] = max((column[one] + 1 for one in graph[it]), default=0)
    ways: list[list[Item]] = [
        [one, *((one, other, at) for at in range(column[one] + 1, column[other])), other] for one, other in ends
    ]
    sources: dict[Item, list[Item]] = {it: [] for it in graph}
    for way in ways:
        for at, (one, other) in enumerate(pairwise(way), column[way[0]] + 1):
            sources.setdefault(other, []).append(one)
            column[other] = at
    boxes: dict[Item, Box] = {}
    left = 0.0
    for at in range(max(column.values()) + 1):
        items = [it for it in sources if column[it] == at]
        # Each column in the order of what its lines come from.
        means = {it: sum(boxes[one].y for one in sources[it]) / max(1, len(sources[it])) for it in items}
        texts = {it: arrows[it].operation if isinstance(it, int) else it if isinstance(it, str) else "" for it in items}
        width = LETTER * max(map(len, texts.values()))
        for y, it in enumerate(sorted(items, key=means.__getitem__)):
            spare = (width - LETTER * len(texts[it])) / 2 if texts[it] else 0
            boxes[it] = Box(texts[it], left + spare, left + width - spare, y, isinstance(it, str))
        left += width + GAP
    return [*boxes.values()], [[boxes[it] for it in way] for way in ways]
