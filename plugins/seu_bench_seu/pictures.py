"""``seu-bench genotypes``: pictures of the genotypes that a run found, drawn by matplotlib."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeAlias

import click
import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from matplotlib.path import Path as Curve

from seu_bench.cli.options import output_path, request_command
from seu_bench.config.options import build_options
from seu_bench.engine.resolve import find_space
from seu_bench.errors import RequestError
from seu_bench.plugin.registry import Registry, use_plugins
from seu_bench.results.record import Record
from seu_bench.results.record_files import find_record
from seu_bench.utils.files import write_atomic
from seu_bench_kit import Arrow
from seu_bench_seu.options import SeuOptions
from seu_bench_seu.strategy import make_space

#: Inches of a letter, of a row, of the gap between columns, and around everything; points of a text.
LETTER, ROW, GAP, MARGIN, SIZE = 0.075, 0.32, 0.3, 0.25, 9
STYLE: Final[Any] = {"svg.fonttype": "none", "svg.hashsalt": "seu-bench", "pdf.fonttype": 42, "text.parse_math": False}
#: What no file may hold, so that the same pictures are the same bytes.
DATES = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}


#: What stands in a column: a node, or an arrow on its way by its index and the column.
Item: TypeAlias = str | tuple[int, int]
Points: TypeAlias = list[tuple[float, float]]
Texts: TypeAlias = list[tuple[str, float, float, bool]]


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
    if record.strategy != "seu" or not found:
        raise RequestError(f"run {record.run_id} found no genotype", remedy="name a run of strategy 'seu'")
    if task is not None and task >= len(found):
        what, remedy = f"run {record.run_id} has no genotype of task {task}", f"give one from 0 to {len(found) - 1}"
        raise RequestError(what, where="--task", remedy=remedy)
    options = build_options(SeuOptions, "strategy 'seu'", record.options)
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
    placed = [(title, *_place(arrows)) for title, arrows in graphs.items()]
    width = 2 * MARGIN + max(max(right, LETTER * len(title)) for title, _, _, right, _ in placed)
    height = 2 * MARGIN + sum(tall + 2 * ROW for *_, tall in placed)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height))
        axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
        axes.axis("off")
        top = MARGIN
        for title, nodes, lines, _, tall in placed:
            axes.text(MARGIN, top + ROW / 2, title, fontsize=SIZE + 1, fontweight="bold", va="center")
            middle = top + 1.25 * ROW + tall / 2
            for label, points in lines:
                shifted = [(MARGIN + x, middle + y) for x, y in points]
                codes = [Curve.MOVETO, *[Curve.CURVE4] * (len(points) - 1)]
                color = "#4a5560" if label else "#b4bcc4"
                arrow = FancyArrowPatch(
                    path=Curve(shifted, codes), arrowstyle="-|>", mutation_scale=9, shrinkA=0, shrinkB=0, color=color
                )
                axes.add_patch(arrow)
            for text, x, y, is_node in nodes:
                edge, face = ("#4a5560", "#e3edf7") if is_node else ("none", "w")
                frame = {"boxstyle": "round,pad=0.25", "facecolor": face, "edgecolor": edge}
                axes.text(MARGIN + x, middle + y, text, fontsize=SIZE, ha="center", va="center", bbox=frame)
            top += tall + 2 * ROW
        file = io.BytesIO()
        figure.savefig(file, format=form, metadata=DATES[form], dpi=150)
    return file.getvalue()


def _place(arrows: Sequence[Arrow]) -> tuple[Texts, list[tuple[str, Points]], float, float]:
    """Texts with their places, and whether they are nodes; arrows with the points of their curves; width and height.

    Nodes stand in columns by the longest way to them. Between two there is a column of labels; an arrow has a row of
    its own in each column that it passes, so that nothing lies on anything else.
    """
    graph: dict[str, list[int]] = {}
    for index, arrow in enumerate(arrows):
        graph.setdefault(arrow.source, [])
        graph.setdefault(arrow.target, []).append(index)
    column: dict[str, int] = {}
    for node in TopologicalSorter({it: [arrows[i].source for i in into] for it, into in graph.items()}).static_order():
        column[node] = max((column[arrows[index].source] + 2 for index in graph[node]), default=0)
    ways: list[list[Item]] = [
        [it.source, *((index, at) for at in range(column[it.source] + 1, column[it.target])), it.target]
        for index, it in enumerate(arrows)
    ]
    columns: list[list[Item]] = [
        [node for node in graph if column[node] == at] for at in range(max(column.values()) + 1)
    ]
    near: defaultdict[Item, tuple[list[Item], list[Item]]] = defaultdict(lambda: ([], []))
    for way in ways:
        for at, item in enumerate(way[1:-1], column[str(way[0])] + 1):
            columns[at].append(item)
        for before, after in pairwise(way):
            near[after][0].append(before)
            near[before][1].append(after)
    y: dict[Item, float] = {}
    for sweep in range(5):  # each column in the order of what is left of it, then of what is right of it
        for items in columns[:: -1 if sweep % 2 else 1]:
            sides = {it: [y.get(each, 0) for each in near[it][sweep % 2]] for it in items}
            items.sort(key=lambda it: sum(sides[it]) / max(1, len(sides[it])))
            y |= {it: (place - (len(items) - 1) / 2) * ROW for place, it in enumerate(items)}
    texts: dict[Item, str] = {
        **{node: node for node in graph},
        **{way[1]: it.operation for it, way in zip(arrows, ways, strict=True)},
    }
    wide = {it: LETTER * len(texts[it]) + 0.06 for it in texts}
    left, spans = 0.0, list[tuple[float, float]]()
    for items in columns:
        spans.append((left, left + max(wide.get(it, 0) for it in items)))
        left = spans[-1][1] + GAP
    x = {it: sum(span) / 2 for items, span in zip(columns, spans, strict=True) for it in items}
    lines = []
    for arrow, way in zip(arrows, ways, strict=True):
        ends = x[way[0]] + wide[way[0]] / 2, x[way[-1]] - wide[way[-1]] / 2
        stops = [(ends[0], y[way[0]])]
        for at, item in enumerate(way[1:-1], column[arrow.source] + 1):
            stops += [(side, y[item]) for side in spans[at]]
        points = stops[:1]
        for (begin, high), (end, low) in pairwise([*stops, (ends[1], y[way[-1]])]):
            middle = (begin + end) / 2
            points += [(middle, high), (middle, low), (end, low)]
        lines.append((arrow.operation, points))
    shown = [(text, x[it], y[it], it in graph) for it, text in texts.items() if text]
    return shown, lines, left - GAP, ROW * max(map(len, columns))
