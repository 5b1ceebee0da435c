"""Summaries of values over seeds, and the significance of differences between them."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

#: Of confidence intervals; differences are tested at level ``1 - CONFIDENCE``.
CONFIDENCE: Final = 0.95
#: With fewer common seeds differences are not tested: two of them have one degree of freedom.
SEEDS_TO_COMPARE: Final = 3

#: Whether the difference of two samples is significant by their common seeds.
Verdict: TypeAlias = Literal["significant", "not significant", "too few seeds"]

#: Differences of so many units in the last place are rounding.
_ROUNDING: Final = 8 * sys.float_info.epsilon


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
    """Summarize a sample of a value per seed; ``None`` without values, or if one was not measured or is not finite."""
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
    from scipy.special import stdtrit  # scipy.stats.t.ppf, which takes seconds to import

    half = float(stdtrit(number - 1, (1 + CONFIDENCE) / 2)) * std / math.sqrt(number)
    if not math.isfinite(half):
        return SampleSummary(number, mean)
    return SampleSummary(number, mean, std, mean - half, mean + half)


def paired_p_value(one: Mapping[int, float], other: Mapping[int, float]) -> float | None:
    """Compute the two-sided p value of the paired t-test over the seeds that both samples, values by seed, have.

    A seed fixes order, split and first weights of a run for all strategies, so that two runs of one seed are no
    independent samples, which Welch's test would need. The value is 0 if the samples differ by the same on every seed,
    1 if they are equal on every seed; ``None`` where fewer than two seeds are common.
    """
    common = one.keys() & other.keys()
    if len(common) < 2:
        return None
    rounding = _ROUNDING * max(max(abs(one[seed]), abs(other[seed])) for seed in common)
    differences = summarize([one[seed] - other[seed] for seed in sorted(common)])
    if differences is None or differences.std is None:
        return None
    error = differences.std / math.sqrt(differences.number)
    if error <= rounding:
        return 1.0 if abs(differences.mean) <= rounding else 0.0
    from scipy.special import stdtr

    return float(2 * stdtr(differences.number - 1, -abs(differences.mean) / error))


def verdict(one: Mapping[int, float], other: Mapping[int, float]) -> Verdict:
    """Decide by :func:`paired_p_value` whether two samples, by seed, differ significantly."""
    p_value = paired_p_value(one, other)
    if p_value is None or len(one.keys() & other.keys()) < SEEDS_TO_COMPARE:
        return "too few seeds"
    return "significant" if p_value < 1 - CONFIDENCE else "not significant"
