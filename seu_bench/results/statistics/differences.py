"""Paired differences over seeds: the test, Holm's correction over the comparisons shown together, and the verdict.

Every statement of significance comes from :func:`compare_paired`, or, over benchmarks, from
:func:`~seu_bench.results.statistics.ranks.compare_ranks`; both leave the last word to :func:`judge`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

from seu_bench.results.statistics.power import LEVEL, detectable_effect
from seu_bench.results.statistics.samples import CONFIDENCE, SampleSummary, summarize

#: With fewer pairs nothing is said: two of them have one degree of freedom.
FEWEST_PAIRS: Final = 3
#: Of the bootstrap. Its generator always starts alike: equal values have equal intervals.
RESAMPLES: Final = 9999

#: Whether a difference is significant at 5 % after Holm's correction.
Verdict: TypeAlias = Literal["significant", "not significant", "too few seeds", "too few benchmarks"]
#: Values of one configuration by seed.
BySeed: TypeAlias = Mapping[int, float]

#: Differences of so many units in the last place are rounding.
_ROUNDING: Final = 8 * sys.float_info.epsilon


@dataclass(frozen=True)
class PairedDifference:
    """The differences of two samples, the first less the second, on the seeds that both have.

    Attributes:
        by_seed: the differences, in the order of seeds.
        p_value: of the two-sided paired t-test (:func:`paired_p_value`).
        corrected: the same after Holm's correction; ``None`` with fewer than :data:`FEWEST_PAIRS` pairs.
        comparisons: number of comparisons that were corrected for.
    """

    by_seed: BySeed
    p_value: float | None = None
    corrected: float | None = None
    comparisons: int = 0

    @property
    def pairs(self) -> int:
        """Number of seeds that both samples have."""
        return len(self.by_seed)

    @property
    def verdict(self) -> Verdict:
        """Whether the difference is significant."""
        return judge(self.corrected)

    @cached_property
    def summary(self) -> SampleSummary | None:
        """Mean, deviation and 95 % interval (Student's t) of the differences; ``None`` without a pair."""
        return summarize(list(self.by_seed.values()))

    @cached_property
    def effect(self) -> float | None:
        """Hedges' g of the pairs: mean by deviation of the differences (Cohen's d_z), without its bias in few pairs.

        The factor is ``gamma(m / 2) / (sqrt(m / 2) gamma((m - 1) / 2))`` with m = pairs - 1 (L. V. Hedges,
        "Distribution Theory for Glass's Estimator of Effect Size", 1981). ``None`` with fewer than
        :data:`FEWEST_PAIRS` pairs, or where all differences are equal.
        """
        found = self.summary
        if self.pairs < FEWEST_PAIRS or found is None or not found.std:
            return None
        half = (found.number - 1) / 2
        unbiased = math.exp(math.lgamma(half) - math.lgamma(half - 0.5)) / math.sqrt(half)
        return unbiased * found.mean / found.std

    @cached_property
    def bootstrap(self) -> tuple[float, float] | None:
        """95 % percentile bootstrap interval of the mean difference; ``None`` with fewer than :data:`FEWEST_PAIRS`.

        Percentiles, since the correction of BCa is itself estimated from the few pairs and covers no better. Either is
        too narrow with few pairs: of 95 % nominal three pairs cover about three quarters. So it decides nothing.
        (B. Efron, R. Tibshirani, "An Introduction to the Bootstrap", 1993)
        """
        found = self.summary
        if self.pairs < FEWEST_PAIRS or found is None or found.std is None:
            return None
        if found.std == 0:
            return found.mean, found.mean
        import numpy as np
        from scipy.stats import bootstrap  # type: ignore[attr-defined]

        interval = bootstrap(
            (list(self.by_seed.values()),),
            np.mean,
            confidence_level=CONFIDENCE,
            n_resamples=RESAMPLES,
            method="percentile",
            rng=np.random.default_rng(0),
        ).confidence_interval
        return float(interval.low), float(interval.high)

    @property
    def detectable(self) -> float | None:
        """The least difference that so many pairs find with 80 % power, in the metric's unit.

        It is :func:`~seu_bench.results.statistics.power.detectable_effect` times the deviation that was measured, which
        with few pairs is itself uncertain. ``None`` with fewer than :data:`FEWEST_PAIRS` pairs, or no deviation.
        """
        found, effect = self.summary, detectable_effect(self.pairs, max(1, self.comparisons))
        if self.pairs < FEWEST_PAIRS or found is None or not found.std or effect is None:
            return None
        return effect * found.std

    def document(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        found, interval = self.summary, self.bootstrap or (None, None)
        return {
            "pairs": self.pairs,
            **{part: getattr(found, part, None) for part in ("mean", "std", "low", "high")},
            "bootstrap_low": interval[0],
            "bootstrap_high": interval[1],
            "hedges_g": self.effect,
            "detectable": self.detectable,
            "p_value": self.p_value,
            "p_holm": self.corrected,
            "comparisons": self.comparisons,
            "verdict": self.verdict,
        }


def compare_paired(family: Sequence[tuple[BySeed, BySeed]]) -> list[PairedDifference]:
    """Compare pairs of samples that are shown together: the one place where differences over seeds are judged.

    Args:
        family: both samples of each comparison, values of a metric by seed.

    Returns:
        A difference for each, corrected by Holm's method for all of them that have enough seeds in common.

    Example:
        >>> low, high = {0: 0.50, 1: 0.52, 2: 0.51}, {0: 0.60, 1: 0.63, 2: 0.61}
        >>> [found.verdict for found in compare_paired([(high, low), (high, high)])]
        ['significant', 'not significant']
    """
    differences = [_differences(one, other) for one, other in family]
    p_values = [paired_p_value(one, other) for one, other in family]
    tested = {
        place: p_value
        for place, p_value in enumerate(p_values)
        if p_value is not None and len(differences[place]) >= FEWEST_PAIRS
    }
    corrected = dict(zip(tested, holm(list(tested.values())), strict=True))
    return [
        PairedDifference(by_seed, p_values[place], corrected.get(place), len(tested))
        for place, by_seed in enumerate(differences)
    ]


def judge(corrected: float | None, of: Literal["seeds", "benchmarks"] = "seeds") -> Verdict:
    """Say what a p value after Holm's correction means; ``None``: there were too few seeds, or benchmarks, to test."""
    if corrected is None:
        return "too few seeds" if of == "seeds" else "too few benchmarks"
    return "significant" if corrected < LEVEL else "not significant"


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p values of a family of tests by Holm's method.

    The probability that any of them is below 5 % by chance is then at most 5 %, whatever their dependence (S. Holm, "A
    Simple Sequentially Rejective Multiple Test Procedure", 1979).

    Args:
        p_values: of all tests of the family.

    Returns:
        Corrected p values in the same order: the i-th smallest of m, from 0, times m - i, no less than those before it
        and at most 1.

    Example:
        >>> holm([0.02, 0.01, 0.5])
        [0.04, 0.03, 0.5]
    """
    corrected, least = [0.0] * len(p_values), 0.0
    for step, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        least = max(least, min(1.0, (len(p_values) - step) * p_values[place]))
        corrected[place] = least
    return corrected


def paired_p_value(one: BySeed, other: BySeed) -> float | None:
    """Compute the two-sided p value of the paired t-test over the seeds that both samples have; not corrected.

    A seed fixes order, split and first weights of a run for all strategies, so that two runs of one seed are no
    independent samples, which Welch's test would need. The value is 0 if the samples differ by the same on every seed,
    1 if they are equal on every seed; ``None`` where fewer than two seeds are common.
    """
    found = summarize(list(_differences(one, other).values()))
    if found is None or found.std is None:
        return None
    if found.std == 0:
        return 0.0 if found.mean else 1.0
    from scipy.special import stdtr

    error = found.std / math.sqrt(found.number)
    return float(2 * stdtr(found.number - 1, -abs(found.mean) / error))


def _differences(one: BySeed, other: BySeed) -> dict[int, float]:
    """Differences on the common seeds; all the same where they are but for rounding, and 0 where that is rounding."""
    common = sorted(one.keys() & other.keys())
    found = {seed: one[seed] - other[seed] for seed in common}
    summary = summarize(list(found.values()))
    if summary is None or summary.std is None:
        return found
    rounding = _ROUNDING * max(max(abs(one[seed]), abs(other[seed])) for seed in common)
    if summary.std / math.sqrt(summary.number) > rounding:
        return found
    return dict.fromkeys(common, summary.mean if abs(summary.mean) > rounding else 0.0)
