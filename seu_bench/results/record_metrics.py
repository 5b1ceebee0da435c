"""Metrics of a record: what :mod:`seu_bench.metrics` makes of its matrix, sizes and stages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from seu_bench.metrics import (
    METRIC_DEFINITIONS,
    RELATIVE,
    AccuracyMatrix,
    acc,
    bwt,
    forgetting,
    learning_acc,
    mixed_score,
)

if TYPE_CHECKING:
    from seu_bench.results.record import Record, StageRecord


class MetricFunction(Protocol):
    """A metric: a number made of a record whose accuracy matrix is complete; ``None`` where it is not defined."""

    summary: str

    def __call__(self, record: Record) -> float | int | None:
        """The metric's value."""


#: The stage that measures the matrix; no cost counts it.
EVALUATION = "evaluation"


SEARCH = "search"


def whole_matrix(record: Record) -> AccuracyMatrix:
    """A record's accuracy matrix with a row for every task of the stream.

    Tasks that were never learned are rows without measurements, so that nothing is called final which is not.
    """
    tasks = max(len(record.task_order), len(record.task_names), len(record.task_classes), len(record.accuracy_matrix))
    return [*record.accuracy_matrix, *[()] * (tasks - len(record.accuracy_matrix))]


def compute_metrics(record: Record) -> dict[str, float | int | None]:
    """Every metric of :data:`METRIC_DEFINITIONS` that is one number, from a record.

    Args:
        record: its matrix may be incomplete, e.g. because the run was interrupted.

    Returns:
        Values by id; ``None`` where not defined or not measured. ``fwt`` is ``None``: a multi-head strategy has no
        trained head to answer for an unseen task. ``intransigence`` and ``percent_of_joint`` are ``None``: they need
        another record (:mod:`seu_bench.results.reference`). ``peak_memory_bytes`` is ``None``: no record can tell.
    """
    matrix = whole_matrix(record)
    accuracy = acc(matrix)
    parameters = record.params_total[-1] if record.params_total else None
    score = None if accuracy is None or parameters is None else mixed_score(100 * accuracy, parameters)
    learning = [stage for stage in record.stages if stage.name != EVALUATION]
    searching = [stage for stage in record.stages if stage.name == SEARCH]
    return {
        "acc": accuracy,
        "learning_acc": learning_acc(matrix),
        "bwt": bwt(matrix),
        "forgetting": forgetting(matrix),
        **dict.fromkeys(RELATIVE),
        "fwt": None,
        "params_total": parameters,
        "params_active": record.params_active[-1] if record.params_active else None,
        "macs": record.macs[-1] if record.macs else None,
        "mixed_score": score,
        "train_seconds": math.fsum(stage.seconds for stage in learning) if learning else None,
        "train_cpu_seconds": _cpu_seconds(learning),
        "search_seconds": math.fsum(stage.seconds for stage in searching) if searching else None,
        "image_passes": sum(stage.image_passes for stage in learning) if learning else None,
        "peak_memory_bytes": None,
        "peak_feature_bytes": None,
    }


def _cpu_seconds(stages: Sequence[StageRecord]) -> float | None:
    measured = [stage.cpu_seconds for stage in stages if stage.cpu_seconds is not None]
    return math.fsum(measured) if measured and len(measured) == len(stages) else None


@dataclass(frozen=True)
class KnownMetric:
    """One of our own metrics in the form in which ``register_metrics`` offers them."""

    name: str

    @property
    def summary(self) -> str:
        """Its definition."""
        return METRIC_DEFINITIONS[self.name]

    def __call__(self, record: Record) -> float | int | None:
        """Its value, as the record's matrix, sizes and stages have it."""
        return compute_metrics(record)[self.name]
