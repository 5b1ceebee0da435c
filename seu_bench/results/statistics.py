"""Statistics over seeds and over benchmarks: the one place where a difference is called significant.

Over seeds: paired t-tests with Holm's correction. Over benchmarks: average ranks, Friedman's test and Holm's post hoc,
after J. Demsar, "Statistical Comparisons of Classifiers over Multiple Data Sets", JMLR 7, 2006.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any, Final, Literal, TypeAlias, TypeVar

#: Differences are tested at this level, two-sided; confidence intervals hold the rest.
LEVEL: Final = 0.05
#: With fewer pairs nothing is said: two of them have one degree of freedom.
FEWEST_PAIRS: Final = 3
#: With fewer benchmarks, or fewer configurations, nothing is tested.
FEWEST_BENCHMARKS, FEWEST_CONFIGURATIONS = 3, 3
#: Differences of so many units in the last place, and means of accuracies and scores that differ by less, are rounding.
_ROUNDING, _EQUAL_MEANS = 8 * sys.float_info.epsilon, 1e-12

#: Whether a difference is significant after Holm's correction.
Verdict: TypeAlias = Literal["significant", "not significant", "too few seeds", "too few benchmarks"]
#: Values of one configuration by seed.
BySeed: TypeAlias = Mapping[int, float]
_Key = TypeVar("_Key")


@dataclass(frozen=True)
class SampleSummary:
    """A sample's mean, standard deviation (n - 1), and 95 % confidence interval of the mean by Student's t.

    ``None``: of one value, or no finite number.
    """

    number: int
    mean: float
    std: float | None = None
    low: float | None = None
    high: float | None = None


def summarize(values: Sequence[float | None]) -> SampleSummary | None:
    """Summarize a metric's values; ``None`` without values, or if one was not measured or is not finite.

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
    except OverflowError:  # a record of others may hold 1e300
        return None
    if not math.isfinite(mean):
        return None
    std = math.sqrt(squares / (number - 1))
    half = _t_quantile(number - 1) * std / math.sqrt(number)
    if not math.isfinite(half):
        return SampleSummary(number, mean)
    return SampleSummary(number, mean, std, mean - half, mean + half)


@cache
def _t_quantile(freedom: int) -> float:
    from scipy.special import stdtrit  # scipy.stats.t.ppf, which takes seconds to import

    return float(stdtrit(freedom, 1 - LEVEL / 2))


@dataclass(frozen=True)
class PairedDifference:
    """The differences of two samples, the first less the second, on the seeds that both have.

    Their summary, the effect (Cohen's d_z without its bias in few pairs; ``None`` for too few, or equal ones), the p
    value of the two-sided paired t-test, and that after Holm's correction for the ``comparisons`` of the family.
    """

    pairs: int
    mean: float | None
    std: float | None
    low: float | None
    high: float | None
    hedges_g: float | None
    p_value: float | None
    p_holm: float | None
    comparisons: int
    verdict: Verdict
    by_seed: BySeed = field(repr=False)

    def document(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {name: value for name, value in asdict(self).items() if name != "by_seed"}


def compare_paired(family: Sequence[tuple[BySeed, BySeed]]) -> list[PairedDifference]:
    """Compare pairs of samples that are shown together.

    Args:
        family: both samples of each comparison, values of a metric by seed; corrected is for those that have enough
            seeds in common.

    Example:
        >>> low, high = {0: 0.50, 1: 0.52, 2: 0.51}, {0: 0.60, 1: 0.63, 2: 0.61}
        >>> [found.verdict for found in compare_paired([(high, low), (high, high)])]
        ['significant', 'not significant']
    """
    differences = [_differences(one, other) for one, other in family]
    p_values = [_p_value(found) for found in differences]
    enough = [place for place, found in enumerate(differences) if len(found) >= FEWEST_PAIRS]
    tested = {place: p_value for place in enough if (p_value := p_values[place]) is not None}
    corrected = dict(zip(tested, holm(list(tested.values())), strict=True))
    found = []
    for place, by_seed in enumerate(differences):
        own, p_holm = summarize(list(by_seed.values())), corrected.get(place)
        mean, std, low, high = (getattr(own, part, None) for part in ("mean", "std", "low", "high"))
        said = (_hedges_g(own), p_values[place], p_holm, len(tested), judge(p_holm, "seeds"))
        found.append(PairedDifference(len(by_seed), mean, std, low, high, *said, by_seed))
    return found


def _hedges_g(found: SampleSummary | None) -> float | None:
    if found is None or found.number < FEWEST_PAIRS or not found.std:
        return None
    half = (found.number - 1) / 2
    unbiased = math.exp(math.lgamma(half) - math.lgamma(half - 0.5)) / math.sqrt(half)
    return unbiased * found.mean / found.std


def judge(p_holm: float | None, of: Literal["seeds", "benchmarks"]) -> Verdict:
    """Say what a p value after Holm's correction means; ``None``: there were too few seeds, or benchmarks, to test."""
    if p_holm is None:
        return "too few seeds" if of == "seeds" else "too few benchmarks"
    return "significant" if p_holm < LEVEL else "not significant"


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p values of a family of tests by Holm's method (S. Holm, 1979)."""
    corrected, least = [0.0] * len(p_values), 0.0
    for step, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        least = max(least, min(1.0, (len(p_values) - step) * p_values[place]))
        corrected[place] = least
    return corrected


def _p_value(differences: BySeed) -> float | None:
    """The two-sided p value of the paired t-test: 0 if all differ by the same, 1 if all are equal."""
    found = summarize(list(differences.values()))
    if found is None or found.std is None:
        return None
    if found.std == 0:
        return 0.0 if found.mean else 1.0
    from scipy.special import stdtr

    error = found.std / math.sqrt(found.number)
    return float(2 * stdtr(found.number - 1, -abs(found.mean) / error))


def _differences(one: BySeed, other: BySeed) -> dict[int, float]:
    """Differences on common seeds, which fix order, split and first weights; those that only rounding makes are one."""
    common = sorted(one.keys() & other.keys())
    found = {seed: one[seed] - other[seed] for seed in common}
    summary = summarize(list(found.values()))
    if summary is None or summary.std is None:
        return found
    rounding = _ROUNDING * max(max(abs(one[seed]), abs(other[seed])) for seed in common)
    if summary.std / math.sqrt(summary.number) > rounding:
        return found
    return dict.fromkeys(common, summary.mean if abs(summary.mean) > rounding else 0.0)


def usual_seeds(samples: Iterable[Iterable[int]]) -> frozenset[int]:
    """Return the seeds that most samples have: the most frequent set of them, of several the largest."""
    found = Counter(map(frozenset, samples))
    return max(found, key=lambda it: (found[it], len(it), [-seed for seed in sorted(it)]), default=frozenset())


def rank_by_common_seeds(samples: Sequence[BySeed]) -> list[int | None]:
    """Rank samples by their means, the highest first; two are compared on the seeds that both have.

    Equal ones share a rank. ``None`` for those that have fewer than :data:`FEWEST_PAIRS` of :func:`usual_seeds`, or
    than all of these, if there are fewer.
    """
    import numpy as np

    usual = usual_seeds(samples)
    ranked = [len(usual & own.keys()) >= min(FEWEST_PAIRS, len(usual)) for own in samples]
    seeds = sorted({seed for own in samples for seed in own})
    table = np.array([[own.get(seed, math.nan) for seed in seeds] for own in samples]).reshape(len(samples), len(seeds))
    rivals = table[ranked]
    with np.errstate(over="ignore", invalid="ignore"):  # a record of others may hold 1e300
        return [
            1 + int((np.nansum(rivals - own, axis=1) > _EQUAL_MEANS * len(seeds)).sum()) if enough else None
            for own, enough in zip(table, ranked, strict=True)
        ]


def on_common_seeds(samples: Mapping[_Key, BySeed]) -> dict[_Key, dict[int, float]]:
    """Restrict samples to the seeds that all of them have; leave out those with too few of them, as there."""
    common = usual = usual_seeds(samples.values())
    kept = set()
    for key in sorted(samples, key=lambda key: -len(usual & samples[key].keys())):
        if len(shared := common & samples[key].keys()) >= min(FEWEST_PAIRS, len(usual)):
            common = shared
            kept.add(key)
    return {key: {seed: samples[key][seed] for seed in sorted(common)} for key in samples if key in kept}


@dataclass(frozen=True)
class AverageRank:
    """A configuration's average rank over benchmarks, and its ranks by benchmark; 1 is the best, ties share theirs.

    ``p_holm`` and ``verdict`` are of its difference to the control; ``None`` for that one.
    """

    configuration: str
    average_rank: float
    ranks: Mapping[str, float]
    p_holm: float | None
    verdict: Verdict | None


@dataclass(frozen=True)
class RankComparison:
    """Configurations compared over benchmarks, the best average rank first."""

    benchmarks: tuple[str, ...]
    control: str  # that the others are compared with
    friedman_chi_squared: float | None  # corrected for ties; None where nothing was tested
    friedman_p_value: float | None
    critical_difference: float  # Bonferroni-Dunn's. Holm's correction rejects what differs by more, and may reject more
    rows: tuple[AverageRank, ...]


def compare_ranks(values: Mapping[str, Mapping[str, float]], *, higher_is_better: bool = True) -> RankComparison:
    """Rank configurations on each benchmark, and compare their average ranks with the best one, the control.

    Only where Friedman's test rejects can a difference be significant. The difference of two average ranks of k
    configurations over N benchmarks is then normal with the variance ``k (k + 1) / (6 N)``. With fewer than three
    benchmarks or configurations nothing is tested.

    Args:
        values: a metric's means over seeds, by benchmark and configuration; every benchmark has all configurations.
        higher_is_better: the metric's direction.

    Example:
        >>> values = {name: {"a": 0.9, "b": 0.8, "c": 0.7} for name in ("one", "two", "three", "four")}
        >>> [(row.configuration, row.average_rank, row.verdict) for row in compare_ranks(values).rows]
        [('a', 1.0, None), ('b', 2.0, 'not significant'), ('c', 3.0, 'significant')]
    """
    import numpy as np
    from scipy.special import ndtr, ndtri
    from scipy.stats import friedmanchisquare, rankdata

    names = list(next(iter(values.values()), {}))
    if not names or any(set(row) != set(names) for row in values.values()):
        raise ValueError("every benchmark must have a value of every configuration")
    table = np.array([[row[name] for name in names] for row in values.values()], dtype=float)
    ranks = rankdata(-table if higher_is_better else table, axis=1)
    means = dict(zip(names, ranks.mean(axis=0).tolist(), strict=True))
    control = min(names, key=lambda name: means[name])
    count, blocks = len(names), len(values)
    error = math.sqrt(count * (count + 1) / (6 * blocks))
    others = [name for name in names if name != control]
    statistic = p_value = None
    p_holm: dict[str, float] = {}
    if blocks >= FEWEST_BENCHMARKS and count >= FEWEST_CONFIGURATIONS:
        statistic, p_value = 0.0, 1.0
        if (ranks != ranks[:, :1]).any():  # where all are equal on every benchmark SciPy divides by zero
            statistic, p_value = map(float, friedmanchisquare(*ranks.T))
        post_hoc = holm([float(2 * ndtr(-abs(means[name] - means[control]) / error)) for name in others])
        # Without Friedman's rejection nothing is: the post hoc test is its second step.
        p_holm = dict(zip(others, (max(p, p_value) for p in post_hoc), strict=True))
    rows = []
    for name, own in zip(names, ranks.T.tolist(), strict=True):
        verdict = None if name == control else judge(p_holm.get(name), "benchmarks")
        rows.append(AverageRank(name, means[name], dict(zip(values, own, strict=True)), p_holm.get(name), verdict))
    critical = -float(ndtri(LEVEL / (2 * max(1, len(others))))) * error
    rows.sort(key=lambda row: (row.average_rank, row.configuration))
    return RankComparison(tuple(values), control, statistic, p_value, critical, tuple(rows))
