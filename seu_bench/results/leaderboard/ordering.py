"""The order of a leaderboard: rows on the front of accuracy against memory first, then the others, each by accuracy.

References are no part of the contest: they come last and are neither on the front nor taken off it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from seu_bench.results.leaderboard.boards import Row
from seu_bench.results.metric import Metric
from seu_bench.results.record_metrics import METRICS, known_metric

ACCURACY: Final = "acc"
#: What a model keeps, in words: the front has the first of these that was measured for all rows.
SIZES: Final[Mapping[str, str]] = {"memory_bytes": "memory", "params_total": "parameters"}

#: Means of a row in the axes of a front, the less the better.
_Point: TypeAlias = tuple[float, ...]


def size_axis(rows: Sequence[Row]) -> str:
    """Return the metric of size that all rows can be compared by: memory, or parameters where a record has no memory.

    References, and rows without accuracy or without any size, have no say.
    """
    rows = [row for row in rows if row.reference is None and row.mean(ACCURACY) is not None]
    known = [found for row in rows if (found := {size for size in SIZES if row.mean(size) is not None})]
    *first, last = SIZES
    return next((size for size in first if known and all(size in found for found in known)), last)


def not_dominated(rows: Sequence[Row], axes: Sequence[str], metrics: Mapping[str, Metric] = METRICS) -> list[Row]:
    """Select rows whose means of all ``axes`` are measured, and which no other row dominates.

    A row dominates another where it is at least as good in all axes, and better in one. Equal rows both stay.
    """
    signs = [-1 if known_metric(axis, metrics).higher_is_better else 1 for axis in axes]
    points: dict[Row, _Point] = {}
    for row in rows:
        means = [mean for axis in axes if (mean := row.mean(axis)) is not None]
        if len(means) == len(axes):
            points[row] = tuple(sign * mean for sign, mean in zip(signs, means, strict=True))
    front: list[_Point] = []
    for mine in sorted(set(points.values())):  # whatever dominates a point stands before it
        if not any(all(its <= own for its, own in zip(other, mine, strict=True)) for other in front):
            front.append(mine)
    on_front = set(front)
    return [row for row, point in points.items() if point in on_front]


def ordered(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Order the rows of a leaderboard, and number them from 1; what was not measured comes last."""
    front = set(not_dominated([row for row in rows if row.reference is None], (ACCURACY, size_axis(rows))))

    def place(row: Row) -> tuple[bool, bool, bool, float, str]:
        accuracy = row.mean(ACCURACY)
        is_reference = row.reference is not None
        return is_reference, row not in front, accuracy is None, -(accuracy or 0.0), row.configuration

    return tuple(
        replace(row, number=number, on_front=row in front) for number, row in enumerate(sorted(rows, key=place), 1)
    )


def by_metric(rows: Sequence[Row], name: str, metric: Metric) -> list[Row]:
    """Order rows by their means of a metric, the best first, or the lowest if neither direction is better; references
    last."""
    sign = -1 if metric.higher_is_better else 1

    def place(row: Row) -> tuple[bool, bool, float]:
        mean = row.mean(name)
        return row.reference is not None, mean is None, sign * (mean or 0.0)

    return sorted(rows, key=place)
