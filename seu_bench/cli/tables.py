"""Records and leaderboards as tables for the terminal.

Everything that comes from a record is shown literally, on one line and without control characters: rich is given
texts and no markup. Tables hold within 80 columns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from seu_bench.config.options import format_option
from seu_bench.results.labels import named_overrides, why_not_ranked
from seu_bench.results.leaderboard.markdown import cells, intervals, notes
from seu_bench.results.metric import Metric
from seu_bench.results.record_metrics import METRICS, SCENARIO_METRICS, in_order, known_metric, measured_rows
from seu_bench.results.reference_rows import reference_of
from seu_bench.results.scenarios import adjective, benchmark_title, definition
from seu_bench.utils.text import format_seconds, printable

if TYPE_CHECKING:
    from seu_bench.results.leaderboard.boards import Leaderboard
    from seu_bench.results.record import Record, StageRecord

#: Characters in a line of an output that is no terminal.
PLAIN_WIDTH: Final = 160
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
    tasks = max([len(record.task_names), *map(len, record.accuracy_matrix)])
    measured = {row: record.accuracy_matrix[row] for row in measured_rows(record)}
    if not measured:
        return "no accuracy was measured"
    return _shares_by_task("accuracy (%) on task ...", "after learning", measured, record.task_names, tasks)


def confusion_table(record: Record) -> RenderableType | None:
    """Confusion between tasks in percent of a task's test images: a row for these, a column per task answered; ``None``
    where it was not measured, as in all scenarios but the class-incremental one."""
    counts = {task: row for task, row in enumerate(record.task_confusion) if sum(row)}
    if not counts:
        return None
    shares = {task: [count / sum(row) for count in row] for task, row in counts.items()}
    tasks = max([len(record.task_names), *map(len, record.task_confusion)])
    return _shares_by_task("answered (%) as task ...", "images of", shares, record.task_names, tasks)


def class_table(record: Record) -> Table | None:
    """Accuracy in percent on each class of each task after the last one, with right answers and images; ``None`` where
    it was not measured."""
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
    return new_table("accuracy (%) by class", ("task", "class, accuracy, right of images"), rows) if rows else None


def _shares_by_task(
    title: str, what: str, rows: Mapping[int, Sequence[float | None]], names: Sequence[str], tasks: int
) -> Group:
    """Shares in percent, a row for each of some tasks and a column for every task."""
    called = dict(enumerate(names))
    tables = []
    for first in range(0, tasks, TASKS_ABREAST):
        abreast = slice(first, first + TASKS_ABREAST)
        cells = [
            (f"{row} {called.get(row, '')}", *map(_share_cell, (*values, *[None] * (tasks - len(values)))[abreast]))
            for row, values in rows.items()
        ]
        tables.append(new_table(title, [what, *[f">{task}" for task in range(tasks)[abreast]]], cells, pad=0))
    return Group(*tables)


def _share_cell(value: float | None) -> Text:
    if value is None or not 0 <= value <= 1:
        return Text("-" if value is None else f"{100 * value:.1f}")
    anchor = round(value * (len(_COLOURS) - 1))
    letters = "#000000" if anchor >= _LIGHT else "#ffffff"
    return Text(f"{100 * value:5.1f}", style=f"{letters} on {_COLOURS[anchor]}")


def accuracy_summary(record: Record) -> RenderableType:
    """Which run it is, and its accuracy matrix."""
    place = f"{benchmark_title(record)}, protocol {record.protocol}"
    title = f"{place}: {record.strategy}, seed {record.seed}, {record.status}"
    return Group(literal(record.run_id), literal(title), "", matrix_table(record))


def metrics_table(record: Record, metrics: Mapping[str, Metric] = METRICS) -> Table:
    """The record's metrics: id, value, definition. Those that are not among ``metrics`` come last."""
    known = {key: known_metric(key, metrics) for key in in_order(list(record.metrics), metrics)}
    rows = [(key, metric.format(record.metrics[key]), metric.summary) for key, metric in known.items()]
    return new_table("metrics", ("=metric", ">value", "definition"), rows)


def leaderboard_table(board: Leaderboard, most: int | None = None, *, usual: bool = True) -> RenderableType:
    """The first ``most`` rows, and references: rank, configuration, seeds; accuracy, forgetting, memory and compute.

    Below are the interval of the accuracy, the mixed score and further costs, and, where they were measured, metrics of
    the scenario, the relative ones and those of plugins: beside the first table's columns those would not hold in the
    width. Columns that are not the ``usual`` ones are one table.
    """
    # The command that makes missing references is printed by itself: what is folded cannot be pasted.
    lines = [*notes(replace(board, missing=None)), f"data {board.data_fingerprint}", f"records: {board.records}"]
    shown = board.first(most)
    if len(shown) < len(board.rows):
        lines.insert(0, f"{len(shown):,} of {len(board.rows):,} rows; the leaderboard's files and --format have all")
    caption = Text("\n").join(literal(line) for line in [*lines, *board.excluded])
    if not board.rows:
        return Group(literal(board.title), "no row is left", caption)

    def table(title: str, names: Sequence[str], rows: Sequence[Sequence[str]] | None = None) -> Table:
        # Numbers are never cut: it is the configuration that is folded where the space is short.
        numbers = [f">{board.heading(name)}".replace(" (", "\n(") for name in names]
        headings = [">rank", "configuration", *([">seeds"] if rows is None else []), *numbers]
        made = new_table(title, headings, cells(board, names, most) if rows is None else rows, pad=0)
        if 0 < len(board.references) < len(shown):
            made.rows[len(shown) - len(board.references) - 1].end_section = True
        return made

    if not usual:
        only = table(board.title, list(board.columns))
        only.caption = caption
        return only
    first = [name for name in ("acc", "forgetting", board.size, "train_flops") if name in board.columns]
    size = "macs" if board.size == "params_total" else "params_total"
    further = [
        name for name in ("image_acc", "mixed_score", size, "train_seconds", "tuning_passes") if name in board.columns
    ]
    accuracy = [name for name in ("acc",) if name in board.columns]
    both = zip(intervals(board, accuracy, most), cells(board, further, most), strict=True)
    measured = {name for name in board.columns if any(row.mean(name) is not None for row in board.rows)}
    relative = {name for name, metric in board.columns.items() if metric.relative} & measured
    tables = [
        table(board.title, first),
        table(
            "95 % confidence interval of the mean accuracy, mixed score, and further costs",
            [*accuracy, *further],
            [[*interval, *row[3:]] for interval, row in both],
        ),
    ]
    if of_scenario := [name for name in board.columns if name in SCENARIO_METRICS]:
        tables.append(table(f"{adjective(board.scenario)}: metrics of the scenario", [*accuracy, *of_scenario]))
    if relative:
        beside = [name for name in board.columns if name in {"acc", "learning_acc", *relative}]
        tables.append(table("beside one model trained jointly on the whole stream", beside))
    if more := [name for name in board.columns if name in measured - relative - set(METRICS)]:
        tables.append(table("metrics of plugins", more))
    tables[-1].caption = caption
    return Group(*[part for shown in tables for part in ("", shown)][1:])


def record_summary(record: Record, metrics: Mapping[str, Metric] = METRICS) -> RenderableType:
    """All that a reader of one run wants: what it was, its matrix, metrics, stages, genotypes, paths and choices."""
    parts: list[RenderableType] = [_header(record), "", matrix_table(record), ""]
    parts += [] if (confusion := confusion_table(record)) is None else [confusion, ""]
    parts += [] if (by_class := class_table(record)) is None else [by_class, ""]
    parts.append(metrics_table(record, metrics))
    if record.stages:
        parts += ["", _stages_table(record)]
    parts += _listed("genotypes", "task", record.genotypes, _genotype)
    parts += _listed("paths (unit used in each layer)", "task", record.paths, _spaced)
    parts += _listed("choices (what was done in each layer)", "task", record.choices, ", ".join)
    parts += _listed("units (task that each was made for)", "layer", record.unit_tasks, _spaced)
    return Group(*parts)


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
        "strategy": record.strategy + _options(record.options),
        "searcher": record.searcher and record.searcher + _options(record.searcher_options),
        "creator": record.creator and record.creator + _options(record.creator_options),
        "tuned": record.tuned and f"{record.tuned.id} by {record.tuned.method} ({record.tuned.sha256[:10]})",
        "matched": record.matched and str(record.matched),
        "seed": str(record.seed),
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


#: Columns of stages of which some record has measured something.
_SHARES = {"clipped_share": "clipped steps", "chance_share": "rewards at chance"}


def _stages_table(record: Record) -> Table:
    def spent(stages: Sequence[StageRecord]) -> tuple[str, str]:
        return format_seconds(sum(stage.seconds for stage in stages)), f"{sum(it.image_passes for it in stages):,}"

    shares = [
        (heading, [getattr(stage, name) for stage in record.stages])
        for name, heading in _SHARES.items()
        if any(getattr(stage, name) is not None for stage in record.stages)
    ]
    rows = [
        (stage.task, stage.name, stage.epochs, *spent([stage]), *[_share(values[at]) for _, values in shares])
        for at, stage in enumerate(record.stages)
    ]
    headings = (">task", "stage", ">epochs", ">time", ">image passes", *[f">{heading}" for heading, _ in shares])
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
    return table


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _listed(title: str, of: str, entries: Iterable[Any] | None, shown: Callable[[Any], str]) -> list[RenderableType]:
    if entries is None:
        return []
    return ["", title, *[literal(f"- {of} {index}: {shown(entry)}") for index, entry in enumerate(entries)]]


def _genotype(found: Mapping[str, Any] | None) -> str:
    return "-" if found is None else json.dumps(found, ensure_ascii=False)


def _spaced(numbers: Iterable[int]) -> str:
    return " ".join(map(str, numbers))


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
