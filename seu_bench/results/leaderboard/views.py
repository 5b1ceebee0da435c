"""Views of a leaderboard: the rows that keep to a budget, and those that no other row dominates.

A view is made of means over seeds; it is shown and never written over a leaderboard's own files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from seu_bench.config.options import did_you_mean
from seu_bench.errors import OptionError
from seu_bench.results.leaderboard.boards import Leaderboard, Row
from seu_bench.results.leaderboard.collection import count, named
from seu_bench.results.metric import Metric
from seu_bench.results.record_metrics import METRICS

#: Axes of a Pareto front unless others are asked for.
AXES: Final = ("acc", "params_total")
#: Shorter names of metrics.
_SHORT: Final = {"params": "params_total", "seconds": "train_seconds"}


def parse_budgets(texts: Sequence[str], metrics: Mapping[str, Metric] = METRICS) -> dict[str, float]:
    """Parse ``["params=5e6,macs=1e9", "seconds=60"]`` to limits by metric; of a name given twice, the lower one.

    Args:
        texts: as given on the command line, in the units of records.
        metrics: those known; a budget can be set on each of which less is better.

    Raises:
        OptionError: an unknown name, or a limit that is no positive number.
    """
    names = [*_SHORT, *[name for name, metric in metrics.items() if metric.higher_is_better is False]]
    budgets: dict[str, float] = {}
    for text in (part for given in texts for part in given.split(",")):
        name, _, number = (part.strip() for part in text.partition("="))
        if name not in names:
            raise OptionError(
                f"--budget {text!r}: there is no budget {name!r}{did_you_mean(name, names)}",
                remedy="give one such as params=5e6; the names are: " + ", ".join(names),
            )
        limit = _positive(number)
        if limit is None:
            raise OptionError(
                f"--budget {text!r}: {number!r} is no positive number", remedy=f"give one such as {name}=5e6"
            )
        metric = _SHORT.get(name, name)
        budgets[metric] = min(limit, budgets.get(metric, math.inf))
    return budgets


def parse_axes(text: str, metrics: Mapping[str, Metric] = METRICS) -> tuple[str, ...]:
    """Parse ``acc,params_total`` to ids of metrics.

    Args:
        text: as given on the command line.
        metrics: those known; an axis is any of which more or less is better.

    Raises:
        OptionError: an unknown metric, one that is given twice, or fewer than two.
    """
    axes = tuple(_SHORT.get(name.strip(), name.strip()) for name in text.split(","))
    known = [name for name, metric in metrics.items() if metric.higher_is_better is not None]
    for axis in axes:
        if axis not in known:
            raise OptionError(
                f"--pareto {text!r}: {axis!r} is no metric with a direction{did_you_mean(axis, known)}",
                remedy="give some of " + ", ".join(known),
            )
    if len(axes) < 2 or len(set(axes)) < len(axes):
        raise OptionError(f"--pareto {text!r}: it takes two different axes or more", remedy=f"give {','.join(AXES)}")
    return axes


def within_budget(
    board: Leaderboard, budgets: Mapping[str, float], metrics: Mapping[str, Metric] = METRICS
) -> Leaderboard:
    """Rows whose means are measured and at most ``budgets``, limits by metric in record units; others are excluded."""
    for name, limit in budgets.items():
        metric = metrics[name]
        means = [(row, row.mean(name)) for row in board.rows]
        over = [(row, mean) for row, mean in means if mean is not None and mean > limit]
        above = [f"{row.configuration}: {metric.format_cell(mean)}" for row, mean in over]
        kept = [row for row, mean in means if mean is not None and mean <= limit]
        unknown = [row.configuration for row, mean in means if mean is None]
        reason = f"{metric.column or name} at most {metric.format_cell(limit)}: " + _excluded("above", above)
        board = board.narrowed(kept, reason + (f"; {_excluded('not measured', unknown)}" if unknown else ""))
    return board


def pareto_front(
    board: Leaderboard, axes: Sequence[str] = AXES, metrics: Mapping[str, Metric] = METRICS
) -> Leaderboard:
    """Rows that no other dominates in the means of ``axes``; those with one not measured are excluded."""
    points = {row.rank: point for row in board.rows if (point := _point(row, axes, metrics)) is not None}
    front = _undominated(points)
    unknown = [row.configuration for row in board.rows if row.rank not in points]
    directions = [
        f"{metrics[axis].column or axis} ({'higher' if metrics[axis].higher_is_better else 'lower'} is better)"
        for axis in axes
    ]
    reason = f"Pareto front of {' and '.join(directions)}: {count(len(points) - len(front), 'dominated row')} excluded"
    kept = [row for row in board.rows if row.rank in front]
    return board.narrowed(kept, reason + (f"; {_excluded('not measured', unknown)}" if unknown else ""))


def _undominated(points: Mapping[int, tuple[float, ...]]) -> set[int]:
    """Keys of the Pareto front (less is better): sorted, a point is only dominated by earlier points of the front."""
    front: dict[int, tuple[float, ...]] = {}
    for key in sorted(points, key=lambda key: points[key]):
        point = points[key]
        if not any(
            other != point and all(mine >= its for mine, its in zip(point, other, strict=True))
            for other in front.values()
        ):
            front[key] = point
    return set(front)


def _point(row: Row, axes: Sequence[str], metrics: Mapping[str, Metric]) -> tuple[float, ...] | None:
    means = [row.mean(axis) for axis in axes]
    signs = [-1 if metrics[axis].higher_is_better else 1 for axis in axes]
    found = tuple(sign * mean for sign, mean in zip(signs, means, strict=True) if mean is not None)
    return found if len(found) == len(axes) else None


def _excluded(why: str, names: Sequence[str]) -> str:
    return f"{count(len(names), 'row')} excluded, {why} ({named(names)})" if names else f"no row is {why}"


def _positive(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 < number < math.inf else None
