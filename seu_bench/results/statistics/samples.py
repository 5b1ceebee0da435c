"""Summaries of values over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

#: Of confidence intervals.
CONFIDENCE: Final = 0.95


@dataclass(frozen=True)
class SampleSummary:
    """A sample's summary.

    Attributes:
        number: n, values in the sample.
        mean: of the values.
        std: sample standard deviation (n - 1); ``None`` for one value, or where it is no finite number.
        low, high: 95 % confidence interval of the mean, ``mean -+ t(0.975, n - 1) * std / sqrt(n)`` with Student's t;
            ``None`` where ``std`` is. It is not cut off where a unit ends, e.g. at 100 %.
    """

    number: int
    mean: float
    std: float | None = None
    low: float | None = None
    high: float | None = None


def summarize(values: Sequence[float | None]) -> SampleSummary | None:
    """Summarize a sample of a value per seed.

    Args:
        values: of one metric, in its unit.

    Returns:
        The summary; ``None`` without values, or if one was not measured or is not finite.

    Example:
        >>> summarize([1.0, 2.0, 3.0]).std
        1.0
    """
    sample = [float(value) for value in values if value is not None and math.isfinite(value)]
    if not sample or len(sample) < len(values):
        return None
    number, first = len(sample), sample[0]
    if number == 1:
        return SampleSummary(1, first)
    try:
        mean = first + math.fsum([value - first for value in sample]) / number
        squares = math.fsum([(value - mean) * (value - mean) for value in sample])
    except OverflowError:  # a stranger's record may hold 1e300
        return None
    if not math.isfinite(mean):
        return None
    std = math.sqrt(squares / (number - 1))
    half = _quantile(number - 1) * std / math.sqrt(number)
    if not math.isfinite(half):
        return SampleSummary(number, mean)
    return SampleSummary(number, mean, std, mean - half, mean + half)


@cache
def _quantile(freedom: int) -> float:
    """Student's t at the upper end of a confidence interval."""
    from scipy.special import stdtrit  # scipy.stats.t.ppf, which takes seconds to import

    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2))
