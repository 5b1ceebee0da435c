"""Part of a leaderboard: the rows that keep to a budget, and those that no other row dominates.

A view is made of means over seeds; it is shown and never written over a leaderboard's own files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from seu_bench.config.options import did_you_mean
from seu_bench.errors import OptionError
from seu_bench.results.leaderboard.boards import COLUMNS, LESS_IS_BETTER, Leaderboard, Row, shown_value
from seu_bench.results.leaderboard.grouping import count, named

#: What a budget can be set on, and the metric that has to keep to it.
BUDGETS: Final = {"params": "params_total", "macs": "macs", "seconds": "train_seconds"}
#: Axes of a Pareto front unless others are asked for.
AXES: Final = ("acc", "params_total")
#: Shorter names of axes.
_SHORT: Final = {"params": "params_total", "seconds": "train_seconds"}


def parse_budgets(texts: Sequence[str]) -> dict[str, float]:
    """``["params=5e6,macs=1e9", "seconds=60"]`` as limits by metric; the lower one where a name is given twice.

    Raises:
        OptionError: an unknown name, or a limit that is no positive number.
    """
    budgets: dict[str, float] = {}
    for text in (part for given in texts for part in given.split(",")):
        name, _, number = text.partition("=")
        metric = BUDGETS.get(name.strip())
        if metric is None:
            raise OptionError(
                f"--budget {text!r}: there is no budget {name.strip()!r}{did_you_mean(name.strip(), BUDGETS)}",
                remedy="give one such as params=5e6; the names are: " + ", ".join(BUDGETS),
            )
        limit = _positive(number)
        if limit is None:
            raise OptionError(
                f"--budget {text!r}: {number.strip()!r} is no positive number",
                remedy=f"give one such as {name.strip()}=5e6",
            )
        budgets[metric] = min(limit, budgets.get(metric, math.inf))
    return budgets


def parse_axes(text: str) -> tuple[str, ...]:
    """``acc,params_total`` as metrics.

    Raises:
        OptionError: an unknown metric, one that is given twice, or fewer than two.
    """
    axes = tuple(_SHORT.get(name.strip(), name.strip()) for name in text.split(","))
    for axis in axes:
        if axis not in COLUMNS:
            raise OptionError(
                f"--pareto {text!r}: {axis!r} is no column of a leaderboard{did_you_mean(axis, COLUMNS)}",
                remedy="give some of " + ", ".join(COLUMNS),
            )
    if len(axes) < 2 or len(set(axes)) < len(axes):
        raise OptionError(f"--pareto {text!r}: it takes two different axes or more", remedy=f"give {','.join(AXES)}")
    return axes


def within_budget(board: Leaderboard, budgets: Mapping[str, float]) -> Leaderboard:
    """The rows whose means are at most ``budgets``, a limit by metric in the record's unit.

    Those above one, and those of which it was not measured, are left out and named.
    """
    for metric, limit in budgets.items():
        means = [(row, row.mean(metric)) for row in board.rows]
        over = [(row, mean) for row, mean in means if mean is not None and mean > limit]
        above = [f"{row.configuration}: {shown_value(metric, mean)}" for row, mean in over]
        kept = [row for row, mean in means if mean is not None and mean <= limit]
        unknown = [row.configuration for row, mean in means if mean is None]
        told = f"{COLUMNS[metric][0]} at most {shown_value(metric, limit)}: " + _left_out("above", above)
        board = board.narrowed(kept, told + (f"; {_left_out('not measured', unknown)}" if unknown else ""))
    return board


def pareto_front(board: Leaderboard, axes: Sequence[str] = AXES) -> Leaderboard:
    """The rows that no other row dominates: none is as good in the means of all ``axes`` and better in one of them.

    Rows of which one of them was not measured are left out and named.
    """
    points = {row.rank: point for row in board.rows if (point := _point(row, axes)) is not None}
    front = _undominated(points)
    unknown = [row.configuration for row in board.rows if row.rank not in points]
    directions = [f"{COLUMNS[axis][0]} ({'lower' if axis in LESS_IS_BETTER else 'higher'} is better)" for axis in axes]
    told = f"Pareto front of {' and '.join(directions)}: {count(len(points) - len(front), 'dominated row')} left out"
    kept = [row for row in board.rows if row.rank in front]
    return board.narrowed(kept, told + (f"; {_left_out('not measured', unknown)}" if unknown else ""))


def _undominated(points: Mapping[int, tuple[float, ...]]) -> set[int]:
    """Keys of the points that no other is below; in all coordinates less is better.

    A point can only be dominated by one that comes before it in the order of coordinates, and then by one of the front.
    """
    front: dict[int, tuple[float, ...]] = {}
    for key in sorted(points, key=lambda key: points[key]):
        point = points[key]
        if not any(
            other != point and all(mine >= its for mine, its in zip(point, other, strict=True))
            for other in front.values()
        ):
            front[key] = point
    return set(front)


def _point(row: Row, axes: Sequence[str]) -> tuple[float, ...] | None:
    means = [row.mean(axis) for axis in axes]
    signs = [1 if axis in LESS_IS_BETTER else -1 for axis in axes]
    found = tuple(sign * mean for sign, mean in zip(signs, means, strict=True) if mean is not None)
    return found if len(found) == len(axes) else None


def _left_out(why: str, names: Sequence[str]) -> str:
    return f"{count(len(names), 'row')} left out, {why} ({named(names)})" if names else f"no row is {why}"


def _positive(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 < number < math.inf else None
