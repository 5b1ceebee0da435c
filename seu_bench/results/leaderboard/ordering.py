"""The order of a leaderboard: learners by accuracy, their ranks, and which are on the front of accuracy against memory.

References are no part of the contest: they come last, have no rank and are neither on the front nor taken off it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from seu_bench.results.leaderboard.boards import Row
from seu_bench.results.metric import Metric
from seu_bench.results.record_metrics import METRICS, known_metric
from seu_bench.results.statistics.ranks import rank_by_common_seeds

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
    """Order the rows of a leaderboard, number them from 1, and rank the learners."""
    learners = [row for row in rows if row.reference is None]
    front = set(not_dominated(learners, (ACCURACY, size_axis(rows))))
    ranks = rank_rows(learners)
    first = sorted(rows, key=lambda row: (row not in front, row.configuration))
    return tuple(
        replace(row, number=number, rank=ranks.get(row), on_front=row in front)
        for number, row in enumerate(by_metric(first, ACCURACY, METRICS[ACCURACY]), 1)
    )


def rank_rows(rows: Iterable[Row]) -> dict[Row, int | None]:
    """Rank the rows whose accuracy was measured for every seed (:func:`rank_by_common_seeds`)."""
    measured = [row for row in rows if row.mean(ACCURACY) is not None]
    return dict(zip(measured, rank_by_common_seeds([row.values(ACCURACY) for row in measured]), strict=True))


def by_metric(rows: Sequence[Row], name: str, metric: Metric) -> list[Row]:
    """Order rows by their means of a metric, the best first, or the lowest if neither direction is better; references
    last."""
    sign = -1 if metric.higher_is_better else 1

    def place(row: Row) -> tuple[bool, bool, float]:
        mean = row.mean(name)
        return row.reference is not None, mean is None, sign * (mean or 0.0)

    return sorted(rows, key=place)
