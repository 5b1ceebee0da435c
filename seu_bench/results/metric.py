"""A metric: all that is known of it, in one place, for core's and those of plugins alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from seu_bench.utils.text import format_seconds

if TYPE_CHECKING:
    from seu_bench.results.record import Record

#: The run that a metric is relative to.
Reference: TypeAlias = Literal["jointly", "apart"]
#: The value of a metric; ``None``: not measured, or not defined.
Value: TypeAlias = float | int | None


class Unit(NamedTuple):
    """A unit of records, and how it is shown: in columns a factor and a format, elsewhere a function of the value."""

    factor: float
    column_format: str
    show: Callable[[float], str]


def _show_number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


#: Units of metrics, by name.
UNITS: Final[Mapping[str, Unit]] = {
    "": Unit(1, ",.2f", _show_number),
    # Adding 0.0 turns -0.0 into 0.0.
    "fraction": Unit(100, ",.2f", lambda value: f"{round(100 * value, 2) + 0.0:.2f} %"),
    "score": Unit(1, ",.4f", "{:.4f}".format),
    "count": Unit(1e-6, ",.3f", _show_number),
    "flops": Unit(1e-12, ",.3f", lambda value: f"{value * 1e-12:,.4g} TFLOP"),
    "seconds": Unit(1, ",.1f", format_seconds),
    "bytes": Unit(1e-6, ",.3f", lambda value: f"{value / 1e6:,.3f} MB"),
}


@dataclass(frozen=True)
class Metric:
    """A metric: its definition, its direction, and where it is shown.

    Args:
        compute: gives the value for a record; ``None`` where it is not defined or was not measured.
        summary: the definition, in one line.
        unit: a key of :data:`UNITS`: ``fraction`` (shown in percent), ``score``, ``count`` (in millions in
            leaderboards), ``flops`` (in units of 10^12), ``seconds``, ``bytes`` (in MB of 1,000,000 bytes), or nothing.
        higher_is_better: the direction; ``None``: neither is better, and no Pareto front or budget has it.
        column: heading of the metric's column in leaderboards; ``None``: no column.
        machine_dependent: whether it may differ between two runs of one seed on one machine: times, memory.
        from_record: whether ``compute`` gives the same value whenever it is called; if not, ``verify`` and loggers
            leave it out.
        relative: gives the value from a record and its reference, both without stages, genotypes and environment; only
            leaderboards and ``load_records`` know that one.
        reference: the run that it is relative to: one trained ``jointly``, on the whole stream at once, or ``apart``,
            with a network for each task.

    Example:
        ``register("worst", Metric(worst, "lowest final accuracy", "fraction", True, column="worst task (%)"))``
    """

    compute: Callable[[Record], Value]
    summary: str = ""
    unit: str = ""
    higher_is_better: bool | None = None
    column: str | None = None
    machine_dependent: bool = False
    from_record: bool = True
    relative: Callable[[Record, Record], Value] | None = None
    reference: Reference = "jointly"

    def __post_init__(self) -> None:
        if not callable(self.compute):
            raise TypeError(f"compute is {self.compute!r}, which is no function of a record")
        if self.unit not in UNITS:
            raise ValueError(f"unknown unit {self.unit!r}; the units are: {', '.join(filter(None, UNITS))}")

    def __call__(self, record: Record) -> Value:
        """Compute the value for a record; NaN and infinity are no measurements, what is no number a TypeError."""
        return _measurement(self.compute(record))

    def beside(self, record: Record, reference: Record) -> Value:
        """Compute the value of a relative metric for a record and its reference."""
        return _measurement(self.relative(record, reference) if self.relative else None)

    def format(self, value: Value) -> str:
        """Format a value for a reader, with its unit; ``-`` for ``None``."""
        return "-" if value is None else UNITS[self.unit].show(value)

    def format_cell(self, value: float) -> str:
        """Format a value in the unit of the metric's column, without the unit."""
        unit = UNITS[self.unit]
        text = format(value * unit.factor, unit.column_format)
        return text if text.strip("-0.") else text.lstrip("-")  # no negative zero


def _measurement(value: Value) -> Value:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"it gave {value!r}, which is no number")
    return value if math.isfinite(value) else None
