"""Metrics of a record computed once more, from its own matrix, sizes and stages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from seu_bench.results.metric import Metric
from seu_bench.results.record import Record
from seu_bench.results.record_metrics import METRICS

#: Metrics are sums and functions of what the record has; another machine's mathematical library may round differently.
_ROUNDING: Final = 1e-12


def recomputed(
    record: Record, metrics: Mapping[str, Metric], *, with_absent: bool = True
) -> tuple[list[str], list[str]]:
    """Compare the recorded metrics with what the rest of the record gives.

    Args:
        record: a finished run's.
        metrics: those known, core's and those of plugins.
        with_absent: whether a metric that could be computed and is not recorded is a difference. Records of earlier
            versions do not have those that are new.

    Returns:
        Differences, and what cannot be compared, with the reason.

    Example:
        ``faults, _ = recomputed(record, METRICS)``
    """
    faults, not_compared = [], []
    for name in dict.fromkeys([*(METRICS if with_absent else ()), *record.metrics]):
        if name not in metrics:
            not_compared.append(f"{name} (its plugin is not installed)")
            continue
        if not metrics[name].from_record:
            continue
        try:
            found = metrics[name](record)
        except Exception as error:  # a plugin's may raise anything, and a record may have been changed to anything
            if name in METRICS:
                return [f"they cannot be computed: {error}"], not_compared
            not_compared.append(f"{name} ({type(error).__name__}: {error})")
            continue
        recorded = record.metrics.get(name)  # absent and not measured are the same: older versions know fewer metrics
        if not _near(recorded, found):
            told = f"recorded {recorded}" if name in record.metrics else "not recorded"
            faults.append(f"{name}: {told}, found {found}")
    return faults, not_compared


def _near(recorded: float | None, found: float | None) -> bool:
    """Whether two metrics are the same number but for rounding, or both are not measured."""
    if recorded is None or found is None:
        return recorded is found
    return math.isclose(recorded, found, rel_tol=_ROUNDING, abs_tol=_ROUNDING)
