"""The comparison of two runs as tables for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from seu_bench.cli.tables import literal, new_table
from seu_bench.results.comparison import Comparison, difference
from seu_bench.results.metric import Metric
from seu_bench.results.record_metrics import METRICS, known_metric
from seu_bench.utils.text import format_seconds

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

#: Headings of a measure's three columns.
_SIDES: Final = ("1", "2", "2 - 1")


def comparison_tables(comparison: Comparison, metrics: Mapping[str, Metric] = METRICS) -> RenderableType:
    """Both runs named, accuracies and costs of each task, metrics, and the settings that are not the same."""
    from rich.console import Group

    parts: list[RenderableType] = [
        literal(f"1: {comparison.one.run_id}"),
        literal(f"2: {comparison.other.run_id}"),
    ]
    if not comparison.same_order:
        parts.append("They learned the tasks in another order; rows are in that of the first.")
    parts += ["", _task_table("accuracy of each task (%)", comparison, ("final", "learned", "forgetting"), _percent)]
    parts += ["", _task_table("cost after and of each task", comparison, ("parameters", "seconds"), _plain)]
    parts += ["", _metrics_table(comparison, metrics), "", _settings_table(comparison)]
    return Group(*parts)


def _task_table(
    title: str, comparison: Comparison, measures: Sequence[str], shown: Callable[[float | None, bool], str]
) -> Table:
    headings = [f">{measure if side == '1' else ''}\n{side}" for measure in measures for side in _SIDES]
    table = new_table(title, "task", *headings, pad=0)
    for task in comparison.tasks:
        pairs = [task.values[measure] for measure in measures]
        cells = [(shown(one, False), shown(two, False), shown(difference((one, two)), True)) for one, two in pairs]
        table.add_row(literal(task.name), *[text for three in cells for text in three])
    return table


def _metrics_table(comparison: Comparison, metrics: Mapping[str, Metric]) -> Table:
    table = new_table("metrics", "metric", *[f">{side}" for side in _SIDES])
    for key, pair in comparison.metrics.items():
        change = difference(pair)
        metric = known_metric(key, metrics)
        values = [metric.format(value) for value in pair]
        table.add_row(literal(key), *values, "-" if change is None else _signed(metric, change))
    return table


def _settings_table(comparison: Comparison) -> RenderableType:
    if not comparison.settings:
        return "settings: all the same"
    table = new_table("settings that differ (-: not set)", "setting", "1", "2")
    for name, pair in comparison.settings.items():
        table.add_row(*map(literal, (name, *["-" if value is None else value for value in pair])))
    return table


def _percent(value: float | None, signed: bool) -> str:
    if value is None:
        return "-"
    value = round(100 * value, 1) + 0.0  # adding 0.0 turns -0.0 into 0.0
    return f"{value:+.1f}" if signed and value else f"{value:.1f}"


def _plain(value: float | None, signed: bool) -> str:
    """Format whole numbers as such, others (seconds) with two decimals."""
    if value is None:
        return "-"
    value = value if isinstance(value, int) else round(value, 2) + 0.0
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
    return f"+{text}" if signed and value > 0 else text


def _signed(metric: Metric, change: float) -> str:
    if metric.unit == "seconds":
        return ("-" if change < 0 else "+" if change > 0 else "") + format_seconds(abs(change))
    text = metric.format(change).replace("%", "points")
    return f"+{text}" if change > 0 else text
