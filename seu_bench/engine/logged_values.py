"""What loggers are told of a run: its configuration, and what was measured, by name and step."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from seu_bench._version import __version__
from seu_bench.config.run import ResultFields
from seu_bench.metrics import avg_acc_curve
from seu_bench.plugin.loggers import LoggedRun, LoggedValues
from seu_bench.results.record_metrics import METRICS, complete_matrix, known_metric, measured_rows

if TYPE_CHECKING:
    from seu_bench.results.metric import Metric
    from seu_bench.results.record import Record
    from seu_bench.training.stage import StageProgress

#: The axis of what is measured after each task: how many were learned.
TASKS: Final = "tasks"


def opening(record: Record) -> LoggedRun:
    """What is known of a run before it trains."""
    begun = re.sub(r"[^0-9T]", "", record.started.partition("+")[0])
    return LoggedRun(record.run_id, f"{record.run_id}/{begun or 'begun'}", dict(_parameters(record)), _tags(record))


def epoch_values(progress: StageProgress, position: int, tasks: int) -> LoggedValues:
    """What the last epoch of a stage measured.

    Args:
        position: epochs of all stages so far.
        tasks: of the whole stream.
    """
    place = f"{_plain(progress.stage)}/{_task(progress.task, tasks)}"
    measured = {"loss": progress.report.loss, "accuracy": progress.report.accuracy}
    values = _finite({f"{place}/{name}": value for name, value in measured.items()})
    return LoggedValues(values, f"{place}/epoch", progress.epoch, position)


def row_values(record: Record, row: int, position: int) -> LoggedValues:
    """What was measured after task ``row`` (0-based): accuracies on the tasks so far, their mean, sizes."""
    matrix = complete_matrix(record)
    tasks = len(matrix)
    values = {f"accuracy/{_task(task, tasks)}": value for task, value in enumerate(matrix[row])}
    values["accuracy/average"] = avg_acc_curve(matrix)[row]
    place = measured_rows(record).index(row)
    for name in ("params_total", "params_active", "macs"):
        values[f"size/{name}"] = next(iter(getattr(record, name)[place : place + 1]), None)
    return LoggedValues(_finite(values), TASKS, row + 1, position)


def final_values(record: Record, position: int, metrics: Mapping[str, Metric] = METRICS) -> LoggedValues:
    """The metrics of a finished run, but for those that were read off its process, e.g. its memory."""
    values = {
        f"final/{_plain(name)}": value
        for name, value in record.metrics.items()
        if known_metric(name, metrics).from_record
    }
    return LoggedValues(_finite(values), TASKS, len(complete_matrix(record)), position)


def _task(task: int, tasks: int) -> str:
    """``task-3``, or ``task-03`` in a longer stream, so that sorting by name is sorting by number."""
    return f"task-{task:0{len(str(max(tasks - 1, 0)))}d}"


def _plain(name: str) -> str:
    """A name of a plugin's with nothing that a store of metrics may refuse, or take for a part of a path."""
    return re.sub(r"[^A-Za-z0-9_ -]", "_", name)[:60] or "_"


def _finite(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if value is not None and math.isfinite(value)}


def _parameters(record: Record) -> Iterator[tuple[str, str | int | float | bool]]:
    chosen = ("strategy", "searcher", "creator", "benchmark", "benchmark_version", "protocol", "seed")
    for name in (*chosen, *ResultFields.model_fields):
        yield from _flat(name, getattr(record, name))
    groups = {
        "options": record.options,
        "searcher_options": record.searcher_options,
        "creator_options": record.creator_options,
        "benchmark_overrides": record.benchmark_overrides,
        # The protocol's own options by strategy are in the options already.
        "protocol_settings": {
            key: value
            for key, value in record.protocol_settings.items()
            if key not in ("strategies", "searchers", "creators")
        },
    }
    for group, values in groups.items():
        yield from _flat(group, values)
    yield "tasks", len(complete_matrix(record))
    yield from _flat("task_names", list(record.task_names))


def _flat(name: str, value: Any) -> Iterator[tuple[str, str | int | float | bool]]:
    """One value, or each of a table's by ``name.key``; what is not set is left out."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            plain = re.sub(r"[^A-Za-z0-9_. -]", "_", str(key))[:100]
            yield from _flat(f"{name}.{plain}", inner)
    elif isinstance(value, str | int | float):
        yield name, value
    elif value is not None:
        yield name, json.dumps(value, ensure_ascii=False, sort_keys=True)


def _tags(record: Record) -> dict[str, str]:
    names = ("strategy", "searcher", "creator", "benchmark", "protocol", "data_fingerprint")
    tags = {name: str(value) for name in names if (value := getattr(record, name)) is not None}
    ranked = record.ranked and not record.synthetic and record.limit is None
    made_by = {"seu_bench": record.environment.versions.get("seu-bench", __version__)}
    return {**tags, **made_by, "ranked": "yes" if ranked else "no"}
