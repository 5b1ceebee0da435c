"""What loggers are given of a run: its description, and the numbers that are measured together."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from seu_bench._version import __version__
from seu_bench.config.options import flattened
from seu_bench.config.run import ResultFields
from seu_bench.metrics import avg_acc_curve
from seu_bench.plugin.loggers import LoggedRun, LoggedValues
from seu_bench.results.labels import protocol_settings
from seu_bench.results.record_metrics import METRICS, complete_matrix, known_metric, measured_rows

if TYPE_CHECKING:
    from seu_bench.results.metric import Metric
    from seu_bench.results.record import Record
    from seu_bench.training.stage import StageProgress

#: Axis of what is measured after each task: the number of tasks learned.
TASKS: Final = "tasks"


def describe_run(record: Record) -> LoggedRun:
    """Describe a run before it trains: its tags, and its configuration as plain values by dotted key."""
    names = ("strategy", "searcher", "creator", "benchmark", "protocol")
    tables = ("options", "searcher_options", "creator_options", "benchmark_overrides", "task_names")
    fields = (*names, "benchmark_version", "seed", *ResultFields.model_fields, *tables)
    document = {name: getattr(record, name) for name in fields} | {
        "protocol_settings": protocol_settings(record),
        "tasks": len(complete_matrix(record)),
    }
    parameters: dict[str, str | int | float | bool] = {}
    for name, value in flattened(document):
        head, dot, rest = name.partition(".")
        plain = head + dot + re.sub(r"[^A-Za-z0-9_. -]", "_", rest)[:200]
        if value is not None:
            simple = isinstance(value, str | int | float)
            parameters[plain] = value if simple else json.dumps(value, ensure_ascii=False, sort_keys=True)
    given = {name: getattr(record, name) for name in (*names, "data_fingerprint")}
    tags = {name: str(value) for name, value in given.items() if value is not None}
    tags["seu_bench"] = record.environment.versions.get("seu-bench", __version__)
    tags["ranked"] = "yes" if record.ranked and not record.synthetic and record.limit is None else "no"
    begun = re.sub(r"[^0-9T]", "", record.started.partition("+")[0])
    return LoggedRun(record.run_id, f"{record.run_id}/{begun or 'begun'}", parameters, tags)


def epoch_values(progress: StageProgress, position: int, tasks: int) -> LoggedValues:
    """Return what the last epoch of a stage measured; ``position`` counts the epochs of all stages so far."""
    place = f"{_plain(progress.stage)}/{_task(progress.task, tasks)}"
    measured = {"loss": progress.report.loss, "accuracy": progress.report.accuracy}
    values = _finite({f"{place}/{name}": value for name, value in measured.items()})
    return LoggedValues(values, f"{place}/epoch", progress.epoch, position)


def row_values(record: Record, row: int, position: int) -> LoggedValues:
    """Return what was measured after task ``row`` (0-based): accuracies on the tasks so far, their mean, sizes."""
    matrix = complete_matrix(record)
    tasks = len(matrix)
    values = {f"accuracy/{_task(task, tasks)}": value for task, value in enumerate(matrix[row])}
    values["accuracy/average"] = avg_acc_curve(matrix)[row]
    place = measured_rows(record).index(row)
    for name in ("params_total", "mask_bits", "params_active", "macs", "memory_bytes"):
        values[f"size/{name}"] = next(iter(getattr(record, name)[place : place + 1]), None)
    return LoggedValues(_finite(values), TASKS, row + 1, position)


def final_values(record: Record, position: int, metrics: Mapping[str, Metric] = METRICS) -> LoggedValues:
    """Return the metrics of a finished run, but for those that were read off its process, e.g. its memory."""
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
