"""Records as a table of pandas, for notebooks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from seu_bench.results.leaderboard.boards import CHOICES
from seu_bench.results.leaderboard.building import collect
from seu_bench.results.record import Record

if TYPE_CHECKING:
    import pandas

#: Keys of a record per task whose last value is the metric of that name.
_PER_TASK: Final = ("params_total", "params_active", "macs")


def load_records(folder: Path | str = "results") -> pandas.DataFrame:
    """Load every readable record of a results folder.

    Args:
        folder: the results folder.

    Returns:
        A row per record, in the order of run ids. Columns are the record's keys; metrics are columns by id
        (``metrics.<id>`` where a record key has that name), those relative to a reference found among the folder's
        records (:func:`~seu_bench.results.reference.compare_with_reference`); options, overrides and environment are
        ``options.<name>``, ``environment.device``, ``environment.versions.torch``, .... What a record has per task and
        a metric has of the last one is ``params_total_per_task`` and so on. ``frame.attrs["unreadable"]`` lists the
        runs that could not be read.

    Raises:
        ResultsError: the folder does not exist.

    Example:
        ``load_records("results").groupby("strategy")["acc"].mean()``
    """
    import pandas

    records, unread = collect(Path(folder), details=True)
    rows = [_flat(record) for record in records]
    metrics = dict.fromkeys(_metric_column(key) for record in records for key in record.metrics)
    frame = pandas.DataFrame(rows, columns=None if rows else list(_flat(_empty())))
    for column in ("limit", "seconds", *metrics):
        # A column of None alone would be one of objects, which cannot be averaged.
        frame[column] = pandas.to_numeric(frame[column])
    frame.attrs["unreadable"] = sorted(name for names in unread.values() for name in names)
    return frame


def _flat(record: Record) -> dict[str, Any]:
    document = record.model_dump(mode="python") | {"may_be_ranked": record.may_be_ranked}
    parts = {key: document.pop(key) for key in CHOICES}
    parts["environment.versions"] = document["environment"].pop("versions")
    parts["environment"] = document.pop("environment")
    metrics = document.pop("metrics")
    document |= {f"{key}_per_task": document.pop(key) for key in _PER_TASK}
    document |= {_metric_column(key): value for key, value in metrics.items()}
    return document | {f"{part}.{key}": value for part, values in parts.items() for key, value in values.items()}


def _empty() -> Record:
    return Record(run_id="x", status="finished", strategy="", benchmark="x", benchmark_version=0, protocol="x", seed=0)


def _metric_column(metric: str) -> str:
    return f"metrics.{metric}" if metric in Record.model_fields and metric not in _PER_TASK else metric
