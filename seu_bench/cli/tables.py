"""Records and leaderboards as tables for the terminal.

Everything that comes from a record is shown literally, on one line and without control characters: rich is given
texts and no markup. Tables hold within 80 columns, the width of an output that is no terminal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from seu_bench.config.options import format_option
from seu_bench.results.labels import why_not_ranked
from seu_bench.results.leaderboard.boards import COMPARED
from seu_bench.results.leaderboard.markdown import LEGEND, cells, intervals
from seu_bench.results.metric import Metric
from seu_bench.results.record_metrics import METRICS, in_order, known_metric, measured_rows
from seu_bench.utils.text import format_seconds, printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

    from seu_bench.results.leaderboard.boards import Leaderboard
    from seu_bench.results.record import Record

#: Test tasks beside each other in a matrix; more go below.
TASKS_ABREAST: Final = 10
#: Background from 0 to 100 %: anchors of matplotlib's map cividis, which readers see alike who see colours otherwise.
_COLOURS: Final = ("#00224e", "#35456c", "#666970", "#948e77", "#c8b866", "#fee838")
#: From this anchor on, black letters are easier to read than white ones.
_LIGHT: Final = 3


def matrix_table(record: Record) -> RenderableType:
    """Accuracy matrix in percent: a row after each task learned, a column per task tested; ``-``: not measured.

    On a terminal with colours cells are shaded, the lighter the better. More than :data:`TASKS_ABREAST` tasks are
    several tables, one below the other. Rows without a measurement are omitted: those of an interrupted run's
    pending tasks, and all but the last of a strategy that is trained on the whole stream at once.
    """
    from rich.console import Group

    matrix = record.accuracy_matrix
    measured = measured_rows(record)
    tasks = max([len(record.task_names), *[len(row) for row in matrix]])
    tables = []
    for first in range(0, tasks, TASKS_ABREAST):
        columns = range(first, min(first + TASKS_ABREAST, tasks))
        table = new_table("accuracy (%) on task ...", "after learning", *[f">{task}" for task in columns], pad=0)
        for row in measured:
            values = matrix[row]
            name = f" {record.task_names[row]}" if row < len(record.task_names) else ""
            cells = [values[task] if task < len(values) else None for task in columns]
            table.add_row(literal(f"{row}{name}"), *map(_accuracy_cell, cells))
        tables.append(table)
    return Group(*(tables if measured else ["no accuracy was measured"]))


def _accuracy_cell(value: float | None) -> Text:
    from rich.text import Text

    if value is None or not 0 <= value <= 1:
        return Text("-" if value is None else f"{100 * value:.1f}")
    anchor = round(value * (len(_COLOURS) - 1))
    letters = "#000000" if anchor >= _LIGHT else "#ffffff"
    return Text(f"{100 * value:5.1f}", style=f"{letters} on {_COLOURS[anchor]}")


def accuracy_summary(record: Record) -> RenderableType:
    """Which run it is, and its accuracy matrix."""
    from rich.console import Group

    title = f"{record.benchmark}, protocol {record.protocol}: {record.strategy}, seed {record.seed}, {record.status}"
    return Group(literal(record.run_id), literal(title), "", matrix_table(record))


def metrics_table(record: Record, metrics: Mapping[str, Metric] = METRICS) -> Table:
    """The record's metrics: id, value, definition. Those that are not among ``metrics`` come last."""
    table = new_table("metrics", "metric", ">value", "definition")
    table.columns[0].no_wrap = True
    for key in in_order(list(record.metrics), metrics):
        metric = known_metric(key, metrics)
        table.add_row(literal(key), metric.format(record.metrics[key]), literal(metric.summary))
    return table


def leaderboard_table(board: Leaderboard, most: int | None = None) -> RenderableType:
    """A leaderboard: rank, configuration, seeds, mean ± standard deviation of what decides; its files have more.

    Below are the intervals of what decides and what it cost, and, where they were measured, the relative metrics and
    those of plugins: beside the first table's columns those would not hold in the width.

    Args:
        most: rows to show at the most; ``None``: all.
    """
    from rich.console import Group
    from rich.text import Text

    notes = [LEGEND, *board.views, f"data {board.data_fingerprint}", f"records: {board.records}"]
    if most is not None and len(board.rows) > most:
        notes.insert(0, f"the best {most:,} of {len(board.rows):,} rows; the leaderboard's files and --format have all")
    caption = Text("\n").join(literal(line) for line in [*notes, *board.excluded])
    if not board.rows:
        return Group(literal(board.title), "no row is left", caption)
    first = [name for name in ("mixed_score", "acc", "forgetting", "params_total") if name in board.columns]
    cost = [name for name in ("macs", "train_seconds") if name in board.columns]
    told_apart = [name for name in COMPARED if name in board.columns]
    intervals_and_cost = [
        [*interval, *row[3:]]
        for interval, row in zip(intervals(board, told_apart, most), cells(board, cost, most), strict=True)
    ]
    tables = [
        _board_table(board.title, _headings(board, first), cells(board, first, most)),
        _board_table(
            "95 % confidence intervals of the means, and cost",
            _headings(board, [*told_apart, *cost], seeds=False),
            intervals_and_cost,
        ),
    ]
    measured = {name for name in board.columns if any(row.mean(name) is not None for row in board.rows)}
    relative = {name for name, metric in board.columns.items() if metric.relative} & measured
    if relative:
        beside = [name for name in board.columns if name in {"acc", "learning_acc", *relative}]
        title = "beside one model trained jointly on the whole stream"
        tables.append(_board_table(title, _headings(board, beside), cells(board, beside, most)))
    more = [name for name in board.columns if name in measured - relative - set(METRICS)]
    if more:
        tables.append(_board_table("metrics of plugins", _headings(board, more), cells(board, more, most)))
    tables[-1].caption = caption
    return Group(*[part for table in tables for part in ("", table)][1:])


def _headings(board: Leaderboard, metrics: Sequence[str], *, seeds: bool = True) -> list[str]:
    return ["#", "configuration", *(["seeds"] if seeds else []), *[board.heading(name) for name in metrics]]


def _board_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    # Numbers are never cut: it is the configuration that is folded where the space is short.
    columns = [heading if heading == "configuration" else ">" + heading.replace(" (", "\n(") for heading in headings]
    table = new_table(title, *columns, pad=0)
    for row in rows:
        table.add_row(*map(literal, row))
    return table


def record_summary(record: Record, metrics: Mapping[str, Metric] = METRICS) -> RenderableType:
    """All that a reader of one run wants: what it was, its matrix, metrics, stages, genotypes, paths and choices."""
    from rich.console import Group

    parts: list[RenderableType] = [_header(record), "", matrix_table(record), "", metrics_table(record, metrics)]
    if record.stages:
        parts += ["", _stages_table(record)]
    if record.genotypes is not None:
        parts += ["", "genotypes"]
        parts += [literal(f"- task {task}: {_genotype(found)}") for task, found in enumerate(record.genotypes)]
    if record.paths is not None:
        parts += ["", "paths (unit used in each layer)"]
        parts += [f"- task {task}: {' '.join(map(str, path))}" for task, path in enumerate(record.paths)]
    if record.choices is not None:
        parts += ["", "choices (what was done in each layer)"]
        parts += [literal(f"- task {task}: {', '.join(chosen)}") for task, chosen in enumerate(record.choices)]
    if record.unit_tasks is not None:
        parts += ["", "units (task that each was made for)"]
        parts += [f"- layer {layer}: {' '.join(map(str, made))}" for layer, made in enumerate(record.unit_tasks)]
    return Group(*parts)


def _header(record: Record) -> Table:
    from rich.table import Table

    status = f"{record.status}: {record.error}" if record.error else record.status
    data = "synthetic" if record.synthetic else record.data_fingerprint or "-"
    environment = record.environment
    versions = " ".join(f"{name} {version}" for name, version in sorted(environment.versions.items()))
    lines = {
        "run": record.run_id,
        "status": status,
        "ranked": f"no: {reason}" if (reason := why_not_ranked(record)) else "yes",
        "benchmark": f"{record.benchmark}, version {record.benchmark_version}, protocol {record.protocol}"
        + _options(record.benchmark_overrides),
        "strategy": record.strategy + _options(record.options),
        "searcher": record.searcher and record.searcher + _options(record.searcher_options),
        "creator": record.creator and record.creator + _options(record.creator_options),
        "seed": str(record.seed),
        "data": data if record.limit is None else f"{data}, limited to {record.limit:,} images per split",
        "task order": " ".join(map(str, record.task_order)),
        "started": record.started,
        "took": format_seconds(record.seconds),
        "device": environment.device + (f", {environment.threads} threads" if environment.threads else ""),
        "made with": " ".join(part for part in (versions, environment.platform) if part),
        "revision": environment.git_revision,
    }
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in lines.items():
        if text:
            table.add_row(name, literal(text))
    return table


def _stages_table(record: Record) -> Table:
    table = new_table("stages", ">task", "stage", ">epochs", ">time", ">image passes")
    for stage in record.stages:
        time = format_seconds(stage.seconds)
        table.add_row(str(stage.task), literal(stage.name), str(stage.epochs), time, f"{stage.image_passes:,}")
    table.add_section()
    seconds = format_seconds(sum(stage.seconds for stage in record.stages))
    table.add_row("all", "", "", seconds, f"{sum(stage.image_passes for stage in record.stages):,}")
    return table


def wide_console() -> Console:
    """Standard output; wide enough for tables where it is not a terminal."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=160)


def _options(options: Mapping[str, Any]) -> str:
    # None means: as the protocol says.
    shown = ", ".join(f"{key}={format_option(value)}" for key, value in sorted(options.items()) if value is not None)
    return f" ({shown})" if shown else ""


def _genotype(found: Mapping[str, Any] | None) -> str:
    return "-" if found is None else json.dumps(found, ensure_ascii=False)


def new_table(title: str, *columns: str, pad: int = 1) -> Table:
    """Return an empty table in the style of all of them.

    Args:
        title: shown literally.
        columns: headings, ``>`` before those of numbers, which are aligned to the right and never wrapped.
        pad: blanks on both sides of a cell.
    """
    from rich import box
    from rich.table import Table

    table = Table(title=literal(title), box=box.SIMPLE_HEAD, padding=(0, pad), show_edge=False)
    table.title_justify = table.caption_justify = "left"
    for heading in columns:
        number = heading.startswith(">")
        justify: Literal["left", "right"] = "right" if number else "left"
        table.add_column(heading.removeprefix(">"), justify=justify, no_wrap=number, overflow="fold")
    return table


def literal(text: object) -> Text:
    """``text`` as it is: in a :class:`rich.text.Text` neither markup nor names of emojis mean anything."""
    from rich.text import Text

    return Text(printable(str(text)))
