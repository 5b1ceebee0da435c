"""Records and leaderboards as tables for the terminal.

Everything that comes from a record is shown literally, on one line and without control characters: rich is given
texts and no markup. Tables hold within 80 columns.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from seu_bench.config.options import format_option
from seu_bench.results.formats import intervals, notes, usual_columns
from seu_bench.results.labels import benchmark_title, definition, named_overrides, why_not_ranked
from seu_bench.results.metric import Metric
from seu_bench.results.record_metrics import METRICS, SCENARIO_METRICS, in_order, known_metric, measured_rows
from seu_bench.results.reference_rows import reference_of
from seu_bench.utils.text import format_bytes, format_seconds, printable

if TYPE_CHECKING:
    from seu_bench.results.leaderboard import Leaderboard
    from seu_bench.results.record import Record, StageRecord

#: Characters in a line of an output that is no terminal.
PLAIN_WIDTH: Final = 160
#: Tasks, and metrics, beside each other; more go below.
_TASKS_ABREAST, _METRICS_ABREAST = 10, 4
#: Further columns of a leaderboard.
_FURTHER: Final = ("image_acc", "mixed_score", "params_total", "macs", "train_seconds", "tuning_passes", "learning_acc")
#: Columns of stages of which some record has measured something.
_SHARES: Final = {"clipped_share": "clipped steps", "chance_share": "rewards at chance"}


def matrix_table(record: Record) -> RenderableType:
    """Return the accuracy matrix in percent: a row after each task learned, a column per task tested.

    Rows without a measurement are omitted: those of an interrupted run's pending tasks, and all but the last of a
    strategy that is trained on the whole stream at once.
    """
    tasks = max([len(record.task_names), *map(len, record.accuracy_matrix)])
    measured = {row: record.accuracy_matrix[row] for row in measured_rows(record)}
    if not measured:
        return "no accuracy was measured"
    return _shares_by_task("accuracy (%) on task ...", "after learning", measured, record.task_names, tasks)


def _confusion_table(record: Record) -> Iterable[RenderableType]:
    shares = {
        task: [answers / sum(row) for answers in row] for task, row in enumerate(record.task_confusion) if sum(row)
    }
    tasks = max([len(record.task_names), *map(len, record.task_confusion)])
    if shares:
        yield from (_shares_by_task("answered (%) as task ...", "images of", shares, record.task_names, tasks), "")


def _class_table(record: Record) -> Iterable[RenderableType]:
    rows = [
        (
            " ".join((str(task), *record.task_names[task : task + 1])),
            ", ".join(
                f"{record.class_name(task, place)} {100 * right / images:.1f} ({right:,}/{images:,})"
                for place, (right, images) in enumerate(counts)
                if images
            ),
        )
        for task, counts in enumerate(record.task_class_counts)
    ]
    if rows:
        yield from (new_table("accuracy (%) by class", ("task", "class, accuracy, right of images"), rows), "")


def _shares_by_task(
    title: str, what: str, rows: Mapping[int, Sequence[float | None]], names: Sequence[str], tasks: int
) -> Group:
    called, tables = dict(enumerate(names)), []
    for first in range(0, tasks, _TASKS_ABREAST):
        abreast = slice(first, first + _TASKS_ABREAST)
        cells = [
            (f"{row} {called.get(row, '')}", *map(_percent, (*values, *[None] * (tasks - len(values)))[abreast]))
            for row, values in rows.items()
        ]
        tables.append(new_table(title, [what, *[f">{task}" for task in range(tasks)[abreast]]], cells, pad=0))
    return Group(*tables)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def accuracy_summary(record: Record) -> RenderableType:
    """Say which run it is, and show its accuracy matrix."""
    place = f"{benchmark_title(record)}, protocol {record.protocol}"
    title = f"{place}: {record.strategy}, seed {record.seed}, {record.status}"
    return Group(literal(record.run_id), literal(title), "", matrix_table(record))


def metrics_table(record: Record, metrics: Mapping[str, Metric] = METRICS) -> Table:
    """Return the record's metrics: id, value, definition. Those that are not among ``metrics`` come last."""
    known = {key: known_metric(key, metrics) for key in in_order(list(record.metrics), metrics)}
    rows = [(key, metric.format(record.metrics[key]), metric.summary) for key, metric in known.items()]
    return new_table("metrics", ("=metric", ">value", "definition"), rows)


def leaderboard_table(board: Leaderboard, most: int | None = None, *, usual: bool = True) -> RenderableType:
    """Return the first ``most`` rows, and references: accuracy, forgetting, size and compute.

    Below are the interval of the accuracy, further costs, and, where they were measured, metrics of the scenario,
    relative ones and those of plugins. Columns that are not the ``usual`` ones are one table.
    """
    # The command that makes missing references is printed by itself: what is folded cannot be pasted.
    lines = [*notes(replace(board, missing=None)), f"data {board.data_fingerprint}", f"records: {board.records}"]
    if most is not None and most < len(board.learners):
        lines.insert(0, f"{most:,} of {len(board.learners):,} learners; the leaderboard's files and --format have all")
    caption = Text("\n").join(literal(line) for line in [*lines, *board.excluded])
    if not board.rows:
        return Group(literal(board.title), "no row is left", caption)
    named = {"image_acc", *_FURTHER, *SCENARIO_METRICS}
    first = usual_columns(board) if usual else list(board.columns)
    further = [
        name
        for name, metric in board.columns.items()
        if usual and name not in first and (name in named or name not in METRICS or metric.relative)
        if any(row.mean(name) is not None for row in board.rows)
    ]
    rows = board.cells(first, most)
    tables = [_board_table(board, board.title, first, [">seeds"], rows)]
    if usual and "acc" in board.columns:
        both = [
            [*interval, *row[3:]]
            for interval, row in zip(intervals(board, ["acc"], most), board.cells(further, most), strict=True)
        ]
        for at in range(0, max(1, len(further)), _METRICS_ABREAST):
            names = further[at : at + _METRICS_ABREAST]
            part = [[*row[:3], *row[3 + at : 3 + at + _METRICS_ABREAST]] for row in both]
            title = "95 % confidence interval of the mean accuracy, and further metrics"
            tables.append(_board_table(board, title, ["acc", *names], [], part))
    return Group(*[part for shown in tables for part in (shown, "")], caption)


def _board_table(
    board: Leaderboard, title: str, names: Sequence[str], more: Sequence[str], rows: Sequence[Sequence[str]]
) -> Table:
    # Numbers are never cut: it is the configuration that is folded where the space is short.
    numbers = [f">{board.heading(name)}".replace(" (", "\n(") for name in names]
    made = new_table(title, [">rank", "configuration", *more, *numbers], rows, pad=0)
    if 0 < len(board.references) < len(rows):
        made.rows[len(rows) - len(board.references) - 1].end_section = True
    return made


def record_summary(record: Record, metrics: Mapping[str, Metric] = METRICS) -> RenderableType:
    """Return all that a reader of one run wants: what it was, its matrix, metrics, stages, genotypes and paths."""
    lists = {
        "genotypes": ("task", record.genotypes),
        "paths (unit used in each layer)": ("task", record.paths),
        "choices (what was done in each layer)": ("task", record.choices),
        "units (task that each was made for)": ("layer", record.unit_tasks),
    }
    parts: list[RenderableType] = [_header(record), "", matrix_table(record), ""]
    parts += [*_confusion_table(record), *_class_table(record), metrics_table(record, metrics)]
    parts += ["", _stages_table(record)] if record.stages else []
    for title, (of, entries) in lists.items():
        lines = [literal(f"- {of} {index}: {_entry(entry)}") for index, entry in enumerate(entries or ())]
        parts += ["", title, *lines] if entries is not None else []
    return Group(*parts)


def _entry(entry: Any) -> str:
    if entry is None:
        return "-"
    if isinstance(entry, Mapping):
        return json.dumps(entry, ensure_ascii=False)
    return (", " if any(isinstance(part, str) for part in entry) else " ").join(map(str, entry))


def _header(record: Record) -> Table:
    data = "synthetic" if record.synthetic else record.data_fingerprint or "-"
    data += ", measured on withheld validation images" if record.evaluation == "validation" else ""
    environment = record.environment
    versions = " ".join(f"{name} {version}" for name, version in sorted(environment.versions.items()))
    lines = {
        "run": record.run_id,
        "status": f"{record.status}: {record.error}" if record.error else record.status,
        "ranked": f"no: {reason}" if (reason := why_not_ranked(record)) else "yes",
        "reference": reference_of(record),
        "benchmark": f"{record.benchmark}, version {record.benchmark_version}, protocol {record.protocol}"
        + _options(named_overrides(record)),
        "scenario": definition(record.scenario),
        "pretrained": record.pretrained,
        "strategy": record.strategy + _options(record.options),
        "searcher": record.searcher and record.searcher + _options(record.searcher_options),
        "creator": record.creator and record.creator + _options(record.creator_options),
        "tuned": record.tuned and f"{record.tuned.id} by {record.tuned.method} ({record.tuned.sha256[:10]})",
        "matched": record.matched and str(record.matched),
        "seed": str(record.seed),
        "parent": record.parent and f"{record.parent.run_id}, continued after {record.parent.tasks} tasks",
        "learner": record.learner_bytes and f"{format_bytes(record.learner_bytes)}, for seu-bench extend",
        "data": data if record.limit is None else f"{data}, limited to {record.limit:,} images per split",
        "task order": " ".join(map(str, record.task_order)),
        "started": record.started,
        "took": format_seconds(record.seconds),
        "code": "; ".join(f"{it.kind} {it.name}: {it}" for it in record.code),
        "earlier code": "; ".join(f"{it.kind} {it.name}: {it}" for it in record.earlier_code),
        "device": environment.device
        + (f", {environment.threads} threads" if environment.threads else "")
        + (", compiled units" if environment.compile else ""),
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


def _options(options: Mapping[str, Any]) -> str:
    # None means: as the protocol says.
    shown = ", ".join(f"{key}={format_option(value)}" for key, value in sorted(options.items()) if value is not None)
    return f" ({shown})" if shown else ""


def _stages_table(record: Record) -> Table:
    def spent(stages: Sequence[StageRecord]) -> tuple[str, str]:
        return format_seconds(sum(stage.seconds for stage in stages)), f"{sum(it.image_passes for it in stages):,}"

    def share(value: float | None) -> str:
        return "-" if value is None else f"{value:.0%}"

    shares = [name for name in _SHARES if any(getattr(stage, name) is not None for stage in record.stages)]
    rows = [
        (stage.task, stage.name, stage.epochs, *spent([stage]), *[share(getattr(stage, name)) for name in shares])
        for stage in record.stages
    ]
    headings = (">task", "stage", ">epochs", ">time", ">image passes", *[f">{_SHARES[name]}" for name in shares])
    table = new_table("stages", headings, rows)
    table.add_section()
    table.add_row("all", "", "", *spent(record.stages))
    steepest = max((it.stability for it in record.stages if it.stability), key=lambda it: it.value, default=None)
    if steepest is not None:
        verdict = "stable" if steepest.value < steepest.bound else "unstable"
        table.caption = (
            f"learning rate x largest curvature of the penalty: {steepest.value:.3g} at most, {verdict} "
            f"(SGD is stable below {steepest.bound:.3g})"
        )
        if least := min(
            (it.stability.share for it in record.stages if it.stability and it.stability.share), default=None
        ):
            table.caption += f"; bounded, down to {least:.2g} times the strength asked for"
    return table


def wide_console() -> Console:
    """Standard output; wide enough for tables where it is not a terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=PLAIN_WIDTH)


def new_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], pad: int = 1) -> Table:
    """Return a table in the style of all of them.

    Args:
        title: shown literally, as is each cell that is no :class:`rich.text.Text`.
        columns: headings, ``>`` before those of numbers, which are aligned to the right; these, and those with ``=``
            before them, are never wrapped.
        pad: blanks on both sides of a cell.
    """
    table = Table(title=literal(title), box=box.SIMPLE_HEAD, padding=(0, pad), show_edge=False)
    table.title_justify = table.caption_justify = "left"
    for heading in columns:
        mark, name = (heading[0], heading[1:]) if heading[:1] in (">", "=") else ("", heading)
        table.add_column(name, justify="right" if mark == ">" else "left", no_wrap=bool(mark), overflow="fold")
    for row in rows:
        table.add_row(*[cell if isinstance(cell, Text) else literal(cell) for cell in row])
    return table


def literal(text: object) -> Text:
    """``text`` as it is: in a :class:`rich.text.Text` neither markup nor names of emojis mean anything."""
    return Text(printable(str(text)))
