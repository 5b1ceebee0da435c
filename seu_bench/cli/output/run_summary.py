"""A run in a dozen lines, and, where everything is wanted, what it was resolved to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from seu_bench.config.commands import command
from seu_bench.config.options import format_option
from seu_bench.results.metric import Metric
from seu_bench.results.record_metrics import METRICS, has_unequal_tasks, measured_rows
from seu_bench.results.reference_rows import reference_of
from seu_bench.results.scenarios import benchmark_title
from seu_bench.utils.text import format_seconds, printable_lines

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from seu_bench.engine.resolve import ResolvedRun
    from seu_bench.results.record import Record

#: Tasks of the final row that are named; more are numbered, and of still more the rest is counted.
_MOST_NAMES: Final = 10
_MOST_TASKS: Final = 20


def summary_lines(record: Record, results: Path, metrics: Mapping[str, Metric] = METRICS) -> Iterator[Table | Text]:
    """Yield what most readers want of a finished run; everything else is shown by the command of the last line.

    Args:
        record: of the run.
        results: the results folder, for that command.
        metrics: those known.
    """
    from rich.table import Table
    from rich.text import Text

    from seu_bench.cli.tables import literal

    name = " + ".join(part for part in (record.strategy, record.searcher, record.creator) if part)
    what = f"{name} on {benchmark_title(record)} (protocol {record.protocol}), seed {record.seed}"
    yield literal(f"{what}: {record.status}, {format_seconds(record.seconds)}")
    rows = {
        "accuracy": _values(record, metrics, {"acc": "", "learning_acc": "right after each task"}),
        "all images": _values(record, metrics, {"image_acc": ""}) if has_unequal_tasks(record) else "",
        "by class": ", ".join(
            filter(None, (_values(record, metrics, {"balanced_acc": "on average"}), _lowest(record)))
        ),
        "incremental": _values(record, metrics, {"avg_incremental_acc": "on average over the steps"}),
        "right task": _values(record, metrics, {"task_accuracy": ""}),
        "forgetting": _values(record, metrics, {"forgetting": ""}),
        "size": _values(record, metrics, {"params_total": "parameters", "memory_bytes": "kept"}),
        "training": _values(record, metrics, {"train_seconds": "", "image_passes": "image passes"}),
        "final row": _final_row(record),
        "reference": reference_of(record) or "",
    }
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for heading, text in rows.items():
        if text:
            table.add_row(f"  {heading}", literal(text))
    yield table
    told = f"{show_command(record, results)} shows the accuracy matrix, all metrics, stages, genotypes"
    yield Text(printable_lines(told))  # each blank of a command counts


def show_command(record: Record, results: Path) -> str:
    """Return the command that shows a run, to be pasted."""
    return command("show", record.run_id, results=results)


def _values(record: Record, metrics: Mapping[str, Metric], names: Mapping[str, str]) -> str:
    """Metrics that were measured, each with what it is."""
    found = {name: record.metrics.get(name) for name in names}
    return ", ".join(
        f"{metrics[name].format(value)} {names[name]}".strip() for name, value in found.items() if value is not None
    )


def _lowest(record: Record) -> str:
    """The class with the lowest accuracy after the last task."""
    counted = [
        (right / images, images, f"class {record.class_name(task, place)!r} of task {task}")
        for task, counts in enumerate(record.task_class_counts)
        for place, (right, images) in enumerate(counts)
        if images
    ]
    if not counted:
        return ""
    share, images, name = min(counted, key=lambda it: it[0])
    return f"lowest {100 * share:.1f} % on {name} ({images:,} images)"


def _final_row(record: Record) -> str:
    """Accuracies on each task after the last one that was learned, in percent."""
    measured = measured_rows(record)
    if not measured:
        return ""
    values = ["-" if value is None else f"{100 * value:.1f}" for value in record.accuracy_matrix[measured[-1]]]
    if len(values) <= _MOST_NAMES and len(record.task_names) == len(values):
        named = zip(values, record.task_names, strict=True)
        return ", ".join(f"{value} % {name}" for value, name in named)
    more = f" and {len(values) - _MOST_TASKS} more" if len(values) > _MOST_TASKS else ""
    return f"{', '.join(values[:_MOST_TASKS])}{more} (% on tasks 0, 1, ...)"


def resolved_lines(run: ResolvedRun) -> Iterator[Table | Text]:
    """Yield a run's id and folders, and its options with the source of each value."""
    from seu_bench.cli.tables import literal, new_table
    from seu_bench.data.dataset import default_data_root
    from seu_bench.engine.option_sources import option_sources

    request = run.request
    yield literal(f"run: {run.spec.run_id}")
    yield literal(f"results: {request.results.absolute()}")
    yield literal(f"data: {default_data_root(request.data_root)}")
    yield literal(f"device: {request.device}")
    if run.tuned is not None:
        yield literal(f"tuned: {run.tuned.id}")
    rows = [(it.key, "-" if it.value is None else format_option(it.value), it.source) for it in option_sources(run)]
    yield new_table("options", ("=option", "value", "=from"), rows)
