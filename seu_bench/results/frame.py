"""Records as a table of pandas, for notebooks."""

from __future__ import annotations

import math
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel

from seu_bench.results.leaderboard.boards import CHOICES
from seu_bench.results.leaderboard.building import collect
from seu_bench.results.record import Record
from seu_bench.results.record_index import BLANK, DETAILS
from seu_bench.results.reference_rows import reference_of

if TYPE_CHECKING:
    import pandas

#: Records that are turned into rows at once.
_AT_ONCE: Final = 500

#: Keys of a record per task whose last value is the metric of that name.
PER_TASK: Final = ("params_total", "params_active", "macs", "memory_bytes")


def load_records(folder: Path | str = "results", *, details: bool = False) -> pandas.DataFrame:
    """Load every readable record of a results folder.

    Args:
        folder: the results folder.
        details: whether to load stages, genotypes, paths, choices, units, numbers of images and earlier environments
            as well, which is most of what records hold.

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

    records, unread = collect(Path(folder), details=details)
    left_out = set() if details else set(DETAILS)
    metrics = dict.fromkeys(_metric_column(key) for record in records for key in record.metrics)
    columns: dict[str, list[Any]] = {} if records else {name: [] for name in _flat(BLANK, left_out)}
    # Lists of columns, some rows at a time: a table of rows takes several times the memory.
    for begin in range(0, len(records), _AT_ONCE):
        rows = [_flat(record, left_out) for record in records[begin : begin + _AT_ONCE]]
        for name in dict.fromkeys(name for row in rows for name in row):
            columns.setdefault(name, [math.nan] * begin)
        for name, values in columns.items():
            values.extend([row.get(name, math.nan) for row in rows])
    frame = pandas.DataFrame(columns)
    for column in ("limit", "seconds", *metrics):
        # A column of None alone would be one of objects, which cannot be averaged.
        frame[column] = pandas.to_numeric(frame[column])
    frame.attrs["unreadable"] = sorted(name for names in unread.values() for name in names)
    return frame


def _flat(record: Record, left_out: Collection[str]) -> dict[str, Any]:
    """The row of a record."""
    document = {key: _plain(getattr(record, key)) for key in Record.model_fields if key not in left_out}
    document |= {"may_be_ranked": record.may_be_ranked, "reference": reference_of(record)}
    parts = {key: document.pop(key) for key in CHOICES}
    if "environment" in document:
        parts["environment.versions"] = document["environment"].pop("versions")
        parts["environment"] = document.pop("environment")
    metrics = document.pop("metrics")
    document |= {f"{key}_per_task": document.pop(key) for key in PER_TASK}
    document |= {_metric_column(key): value for key, value in metrics.items()}
    return document | {f"{part}.{key}": value for part, values in parts.items() for key, value in values.items()}


def _plain(value: Any) -> Any:
    """A value without models; tuples without any stay as they are."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="python")
    if isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
        return tuple(map(_plain, value))
    return value


@cache
def _metric_column(metric: str) -> str:
    return f"metrics.{metric}" if metric in Record.model_fields and metric not in PER_TASK else metric
