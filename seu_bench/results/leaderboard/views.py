"""Views of a leaderboard: rows that keep to a budget, those that no other row dominates, and rows in another order.

A view is made of means over seeds; it is shown and never written over a leaderboard's own files.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from seu_bench.config.options import did_you_mean
from seu_bench.errors import OptionError
from seu_bench.results.leaderboard.boards import Leaderboard, Row
from seu_bench.results.leaderboard.markdown import count, named
from seu_bench.results.leaderboard.ordering import ACCURACY, by_metric, not_dominated, size_axis
from seu_bench.results.metric import Metric
from seu_bench.results.record_metrics import METRICS

#: Shorter names of metrics.
SHORT_NAMES: Final = {"params": "params_total", "memory": "memory_bytes", "seconds": "train_seconds"}


def parse_budgets(texts: Sequence[str], metrics: Mapping[str, Metric] = METRICS) -> dict[str, float]:
    """Parse ``["params=5e6,macs=1e9", "seconds=60"]``, in the units of records, to limits by metric.

    A budget can be set on each metric of which less is better; of a name given twice, the lower one counts.
    """
    names = [*SHORT_NAMES, *[name for name, metric in metrics.items() if metric.higher_is_better is False]]
    budgets: dict[str, float] = {}
    for text in (part for given in texts for part in given.split(",")):
        name, _, number = (part.strip() for part in text.partition("="))
        if name not in names:
            raise OptionError(
                f"--budget {text!r}: there is no budget {name!r}{did_you_mean(name, names)}",
                remedy="give one such as params=5e6; the names are: " + ", ".join(names),
            )
        try:
            limit = float(number)
        except ValueError:
            limit = math.nan
        if not 0 < limit < math.inf:
            raise OptionError(
                f"--budget {text!r}: {number!r} is no positive number", remedy=f"give one such as {name}=5e6"
            )
        metric = SHORT_NAMES.get(name, name)
        budgets[metric] = min(limit, budgets.get(metric, math.inf))
    return budgets


def parse_axes(text: str, metrics: Mapping[str, Metric] = METRICS) -> tuple[str, ...]:
    """Parse ``acc,params_total`` to ids of metrics, two or more; an axis is any of which more or less is better."""
    axes = tuple(SHORT_NAMES.get(name.strip(), name.strip()) for name in text.split(","))
    known = [name for name, metric in metrics.items() if metric.higher_is_better is not None]
    for axis in axes:
        if axis not in known:
            raise OptionError(
                f"--pareto {text!r}: {axis!r} is no metric with a direction{did_you_mean(axis, known)}",
                remedy="give some of " + ", ".join(known),
            )
    if len(axes) < 2 or len(set(axes)) < len(axes):
        raise OptionError(f"--pareto {text!r}: it takes two different axes or more", remedy="give acc,params_total")
    return axes


def within_budget(
    board: Leaderboard, budgets: Mapping[str, float], metrics: Mapping[str, Metric] = METRICS
) -> Leaderboard:
    """Rows whose means are measured and at most ``budgets``, limits by metric in record units; others are excluded."""
    for name, limit in budgets.items():
        metric = metrics[name]
        means = {row: mean for row in board.rows if (mean := row.mean(name)) is not None}
        above = [f"{row.configuration}: {metric.format_cell(mean)}" for row, mean in means.items() if mean > limit]
        reason = f"{metric.column or name} at most {metric.format_cell(limit)}: {_excluded('above', above)}"
        board = _narrowed(board, [row for row, mean in means.items() if mean <= limit], reason, means)
    return board


def pareto_front(board: Leaderboard, axes: Sequence[str] = (), metrics: Mapping[str, Metric] = METRICS) -> Leaderboard:
    """Rows that no other dominates in the means of ``axes``; those with one not measured are excluded.

    References stay and dominate none. Without ``axes`` they are accuracy and memory, or parameters where a row has no
    memory.
    """
    axes = axes or (ACCURACY, size_axis(board.rows))
    rows = [row for row in board.rows if all(row.mean(axis) is not None for axis in axes)]
    learners = [row for row in rows if row.reference is None]
    front = not_dominated(learners, axes, metrics)
    directions = [
        f"{metrics[axis].column or axis} ({'higher' if metrics[axis].higher_is_better else 'lower'} is better)"
        for axis in axes
    ]
    reason = (
        f"Pareto front of {' and '.join(directions)}: {count(len(learners) - len(front), 'dominated row')} excluded"
    )
    references = [row for row in rows if row.reference is not None]
    return _narrowed(board, [*front, *references], reason, rows)


def in_order_of(board: Leaderboard, name: str, metrics: Mapping[str, Metric] = METRICS) -> Leaderboard:
    """The rows by their means of a metric, the best first; those for which it was not measured come last."""
    metric = metrics[name]
    best = {True: "the highest", False: "the lowest", None: "the lowest"}[metric.higher_is_better]
    return board.narrowed(by_metric(board.rows, name, metric), f"sorted by {metric.column or name}, {best} first")


def parse_metric(option: str, text: str, metrics: Mapping[str, Metric] = METRICS) -> str:
    """Parse the name of a metric that an option was given to its id."""
    name = SHORT_NAMES.get(text.strip(), text.strip())
    if name not in metrics:
        raise OptionError(
            f"{option} {text!r}: there is no such metric{did_you_mean(name, list(metrics))}",
            remedy="give one of " + ", ".join(metrics),
        )
    return name


def parse_columns(text: str, metrics: Mapping[str, Metric] = METRICS) -> tuple[str, ...]:
    """Parse ``acc,memory`` to ids of metrics with a column, ``all`` to none."""
    if text.strip() == "all":
        return ()
    known = {name: metric for name, metric in metrics.items() if metric.column}
    return tuple(dict.fromkeys(parse_metric("--columns", name, known) for name in text.split(",")))


def with_columns(board: Leaderboard, names: Sequence[str], metrics: Mapping[str, Metric] = METRICS) -> Leaderboard:
    """The leaderboard with these columns, in this order; without names, with every column that it has."""
    return replace(board, columns={name: metrics[name] for name in names}) if names else board


def _narrowed(board: Leaderboard, kept: Sequence[Row], reason: str, measured: Collection[Row]) -> Leaderboard:
    """The rows kept; those that are not among the measured ones are named beside the reason."""
    unknown = [row.configuration for row in board.rows if row not in measured]
    return board.narrowed(kept, reason + (f"; {_excluded('not measured', unknown)}" if unknown else ""))


def _excluded(why: str, names: Sequence[str]) -> str:
    return f"{count(len(names), 'row')} excluded, {why} ({named(names)})" if names else f"no row is {why}"
