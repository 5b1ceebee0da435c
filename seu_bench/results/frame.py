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
from seu_bench.results.record_files import DETAILS
from seu_bench.results.record_metrics import METRICS
from seu_bench.results.reference_rows import reference_of

if TYPE_CHECKING:
    import pandas

#: A record whose columns a table without records has.
_BLANK: Final = Record(
    run_id="x", status="finished", strategy="", benchmark="x", benchmark_version=0, protocol="x", seed=0
)
#: Records that are turned into rows at once.
_AT_ONCE: Final = 500

#: Columns of whole numbers, whichever records there are: of a record's keys, and of core's metrics.
_COUNTED: Final = ("limit", "first_tasks", "environment.threads")
_COUNTED_METRICS: Final = frozenset(
    name for name, metric in METRICS.items() if metric.unit in ("count", "flops", "bytes")
)
_OPTIONS: Final = tuple(f"{part}." for part in CHOICES)

#: Keys of a record per task whose last value is the metric of that name.
PER_TASK: Final = ("params_total", "mask_bits", "params_active", "macs", "memory_bytes")


def load_records(folder: Path | str = "results", *, details: bool = False) -> pandas.DataFrame:
    """Load every readable record of a results folder.

    Args:
        folder: the results folder.
        details: whether to load stages, genotypes, paths, choices, units, numbers of images, counts by class, inputs
            and earlier environments as well, which is most of what records hold.

    Returns:
        A row per record, in the order of run ids. Columns are the record's keys; metrics are columns by id
        (``metrics.<id>`` where a record key has that name), those relative to a reference found among the folder's
        records (:func:`~seu_bench.results.reference.compare_with_reference`); options, overrides and environment are
        ``options.<name>``, ``environment.device``, ``environment.versions.torch``, .... What a record has per task and
        a metric has of the last one is ``params_total_per_task`` and so on. ``frame.attrs["unreadable"]`` lists the
        runs that could not be read.

        A column has the same type in every folder, and the values of the record: numbers that are counted
        (``params_total``, ``memory_bytes``, ``train_flops``, ``limit``, ...) are ``Int64``, in which what was not
        measured is ``pandas.NA``, and never become floats; what is measured is ``float64`` with NaN. Means are floats.
        Options are ``Int64``, ``boolean`` or ``float64`` where all runs that have them have such values.

    Raises:
        ResultsError: the folder does not exist.

    Example:
        ``load_records("results").groupby("strategy")["acc"].mean()``
    """
    import pandas

    records, unread = collect(Path(folder), details=details)
    left_out = set() if details else set(DETAILS)
    metrics = dict.fromkeys(_metric_column(key) for record in records for key in record.metrics)
    columns: dict[str, list[Any]] = {} if records else {name: [] for name in _flat(_BLANK, left_out)}
    # Lists of columns, some rows at a time: a table of rows takes several times the memory.
    for begin in range(0, len(records), _AT_ONCE):
        rows = [_flat(record, left_out) for record in records[begin : begin + _AT_ONCE]]
        for name in dict.fromkeys(name for row in rows for name in row):
            columns.setdefault(name, [math.nan] * begin)
        for name, values in columns.items():
            values.extend([row.get(name, math.nan) for row in rows])
    frame = pandas.DataFrame(columns)
    counted = {*_COUNTED, *map(_metric_column, _COUNTED_METRICS)}
    for column in frame.columns:
        if column in counted or column in metrics or column == "seconds":
            frame[column] = _numbers(columns[column], counted=column in counted)
        elif column.startswith(_OPTIONS):
            frame[column] = _option_values(frame[column], columns[column])
    frame.attrs["unreadable"] = sorted(name for names in unread.values() for name in names)
    return frame


def _numbers(values: list[Any], *, counted: bool) -> Any:
    """A column of numbers: whole ones, where all are, or else floats. From the values: 2**53 + 1 is no float."""
    import pandas

    known = [None if _is_missing(value) else value for value in values]
    # A stranger's record may have half a parameter.
    if counted and all(value is None or (float(value).is_integer() and _fits(value)) for value in known):
        return pandas.array([None if value is None else int(value) for value in known], dtype="Int64")
    return pandas.array([math.nan if value is None else float(value) for value in known], dtype="float64")


def _option_values(column: Any, values: list[Any]) -> Any:
    """The column of an option, whose values are of one type if those of all runs that have it are."""
    import pandas

    kinds = {type(value) for value in values if not _is_missing(value)}
    if kinds == {bool}:
        return pandas.array([value if isinstance(value, bool) else None for value in values], dtype="boolean")
    if kinds and kinds <= {int, float} and all(_fits(value) for value in values if isinstance(value, int)):
        return _numbers(values, counted=kinds == {int})
    return column


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _fits(value: float) -> bool:
    return -(2**63) <= value < 2**63


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
