"""Paired differences as text for a reader, in the units of leaderboards' columns."""

from __future__ import annotations

from typing import Final, NamedTuple

from seu_bench.results.metric import UNITS, Metric
from seu_bench.results.statistics.differences import PairedDifference

#: What the verdicts and the numbers beside them mean.
MEANING: Final = (
    "Significant: paired t-test over common seeds, p < 0.05 after Holm's correction for the configurations compared. "
    "Intervals are of the mean difference, each by itself. Detectable: what so many seeds find with 80 % power."
)


class DifferenceCells(NamedTuple):
    """A difference in words; ``-`` where it was not measured, or there are too few seeds."""

    difference: str
    interval: str
    bootstrap: str
    verdict: str
    effect: str
    detectable: str
    p_value: str
    corrected: str


#: Headings of the cells.
HEADINGS: Final = DifferenceCells(
    "difference", "95 % interval", "bootstrap", "verdict", "Hedges' g", "detectable", "p", "p (Holm)"
)


def difference_cells(found: PairedDifference, metric: Metric) -> DifferenceCells:
    """Format a difference of a metric."""
    own = found.summary
    return DifferenceCells(
        "-" if own is None else _signed(own.mean, metric),
        "-" if own is None or own.low is None or own.high is None else _between((own.low, own.high), metric),
        "-" if found.bootstrap is None else _between(found.bootstrap, metric),
        found.verdict,
        "-" if found.effect is None else f"{found.effect:+.2f}",
        "-" if found.detectable is None else metric.format_cell(found.detectable),
        _p_value(found.p_value),
        _p_value(found.corrected),
    )


def _between(ends: tuple[float, float], metric: Metric) -> str:
    return " to ".join(_signed(end, metric) for end in ends)


def _signed(value: float, metric: Metric) -> str:
    text = metric.format_cell(value)
    return text if text.startswith("-") or value * UNITS[metric.unit].factor <= 0 else f"+{text}"


def _p_value(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}" if value >= 1e-4 else "<0.0001"
