"""Several configurations ranked on their common seeds; and over several benchmarks: average ranks, Friedman's test, and
Holm's post hoc.

After J. Demsar, "Statistical Comparisons of Classifiers over Multiple Data Sets", JMLR 7, 2006. The blocks are
benchmarks, not benchmarks times seeds: seeds of one benchmark are no independent data sets, so that a configuration's
value on a benchmark is its mean over seeds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from seu_bench.results.statistics.differences import FEWEST_PAIRS, BySeed, Verdict, holm, judge
from seu_bench.results.statistics.power import LEVEL

#: With fewer benchmarks, or fewer configurations, nothing is tested.
FEWEST_BENCHMARKS: Final = 3
FEWEST_CONFIGURATIONS: Final = 3
#: Draws of a bootstrap.
BOOTSTRAPS: Final = 2000
#: Means of accuracies and scores that differ by less are equal but for rounding.
_ROUNDING: Final = 1e-12

_Key = TypeVar("_Key")


def usual_seeds(samples: Iterable[Iterable[int]]) -> frozenset[int]:
    """Return the seeds that most samples have: the most frequent set of them, of several the largest."""
    counts = Counter(map(frozenset, samples))
    return max(
        counts, key=lambda seeds: (counts[seeds], len(seeds), [-seed for seed in sorted(seeds)]), default=frozenset()
    )


def rank_by_common_seeds(samples: Sequence[BySeed]) -> list[int | None]:
    """Rank samples by their means, the highest first; two are compared on the seeds that both have.

    Args:
        samples: values of a metric by seed.

    Returns:
        One more than the number of samples that are better than it; equal ones have the same rank. ``None`` for those
        that have fewer than :data:`~seu_bench.results.statistics.differences.FEWEST_PAIRS` of :func:`usual_seeds`, or
        than all of these, if there are fewer.

    Example:
        >>> easy, hard = {0: 0.9, 1: 0.9, 2: 0.9}, {3: 0.1, 4: 0.1}
        >>> rank_by_common_seeds([easy | hard, {seed: 0.95 for seed in easy | hard}, {seed: 0.85 for seed in easy}])
        [2, 1, 3]
    """
    import numpy as np

    usual = usual_seeds(samples)
    ranked = [len(usual & own.keys()) >= min(FEWEST_PAIRS, len(usual)) for own in samples]
    seeds = sorted({seed for own in samples for seed in own})
    table = np.array([[own.get(seed, math.nan) for seed in seeds] for own in samples]).reshape(len(samples), len(seeds))
    rivals = table[ranked]
    with np.errstate(over="ignore", invalid="ignore"):  # a stranger's record may hold 1e300
        return [
            1 + int((np.nansum(rivals - own, axis=1) > _ROUNDING * len(seeds)).sum()) if enough else None
            for own, enough in zip(table, ranked, strict=True)
        ]


def on_common_seeds(samples: Mapping[_Key, BySeed]) -> dict[_Key, dict[int, float]]:
    """Restrict samples to the seeds that all of them have.

    Args:
        samples: values of a metric by seed.

    Returns:
        Those that have enough seeds in common (see :func:`rank_by_common_seeds`); the others are left out, those that
        have the fewest of :func:`usual_seeds` first.
    """
    common = usual = usual_seeds(samples.values())
    kept = set()
    for key in sorted(samples, key=lambda key: -len(usual & samples[key].keys())):
        if len(shared := common & samples[key].keys()) >= min(FEWEST_PAIRS, len(usual)):
            common = shared
            kept.add(key)
    return {key: {seed: samples[key][seed] for seed in sorted(common)} for key in samples if key in kept}


@dataclass(frozen=True)
class AverageRank:
    """A configuration's average rank over the benchmarks, 1 for the best on all of them; ties share their ranks.

    Attributes:
        ranks: by benchmark.
        interval: of the average rank, from the spread over seeds; ``None`` where a value is that of one seed.
        corrected: p value of its difference to the control, after Holm's correction; ``None`` for the control itself,
            and where nothing was tested.
        verdict: whether it ranks significantly worse, or better, than the control; ``None`` for the control itself.
    """

    configuration: str
    mean: float
    ranks: Mapping[str, float]
    corrected: float | None
    verdict: Verdict | None
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class RankComparison:
    """Configurations compared over benchmarks.

    Attributes:
        benchmarks: the blocks.
        rows: the configurations, the best average rank first.
        control: the configuration that the others are compared with.
        statistic: Friedman's chi-squared, corrected for ties; ``None`` where nothing was tested.
        p_value: of it, with one degree of freedom less than there are configurations.
        critical_difference: of average ranks: what differs by more from the control is significant after Bonferroni's
            correction (Bonferroni-Dunn). Holm's rejects these and may reject more.
    """

    benchmarks: tuple[str, ...]
    rows: tuple[AverageRank, ...]
    control: str
    statistic: float | None
    p_value: float | None
    critical_difference: float

    def document(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "benchmarks": list(self.benchmarks),
            "control": self.control,
            "friedman_chi_squared": self.statistic,
            "friedman_p_value": self.p_value,
            "critical_difference": self.critical_difference,
            "rows": [
                {
                    "configuration": row.configuration,
                    "average_rank": row.mean,
                    "ranks": dict(row.ranks),
                    "interval": None if row.interval is None else list(row.interval),
                    "p_holm": row.corrected,
                    "verdict": row.verdict,
                }
                for row in self.rows
            ],
        }


def compare_ranks(
    values: Mapping[str, Mapping[str, float]],
    *,
    higher_is_better: bool = True,
    control: str | None = None,
    seeds: Mapping[str, Mapping[str, Sequence[float]]] | None = None,
) -> RankComparison:
    """Rank configurations on each benchmark, and compare their average ranks with that of a control.

    Friedman's test comes first; only where it rejects can a difference be significant. The difference of two average
    ranks of k configurations over N benchmarks is then normal with the variance ``k (k + 1) / (6 N)``. With few
    benchmarks the chi-squared distribution of Friedman's statistic is conservative.

    Args:
        values: a metric's means over seeds, by benchmark and configuration; every benchmark has all configurations.
        higher_is_better: the metric's direction.
        control: the configuration to compare with; ``None``: that with the best average rank.
        seeds: the values that ``values`` are means of, for intervals by :func:`rank_intervals`.

    Returns:
        Ranks and tests; with fewer than three benchmarks or configurations ranks alone.

    Raises:
        ValueError: there is no benchmark, no configuration, a benchmark lacks one, or ``control`` is none of them.

    Example:
        >>> values = {name: {"a": 0.9, "b": 0.8, "c": 0.7} for name in ("one", "two", "three", "four")}
        >>> found = compare_ranks(values)
        >>> [(row.configuration, row.mean, row.verdict) for row in found.rows]
        [('a', 1.0, None), ('b', 2.0, 'not significant'), ('c', 3.0, 'significant')]
    """
    import numpy as np
    from scipy.special import ndtr, ndtri
    from scipy.stats import friedmanchisquare, rankdata

    names = list(next(iter(values.values()), {}))
    if not names or any(set(row) != set(names) for row in values.values()):
        raise ValueError("every benchmark must have a value of every configuration")
    if control is not None and control not in names:
        raise ValueError(f"the control {control!r} is none of the configurations {', '.join(names)}")
    table = np.array([[row[name] for name in names] for row in values.values()], dtype=float)
    ranks = rankdata(-table if higher_is_better else table, axis=1)
    means = dict(zip(names, ranks.mean(axis=0).tolist(), strict=True))
    first = control or min(names, key=lambda name: means[name])
    count, blocks = len(names), len(values)
    error = math.sqrt(count * (count + 1) / (6 * blocks))
    others = [name for name in names if name != first]
    statistic = p_value = None
    corrected: dict[str, float] = {}
    if blocks >= FEWEST_BENCHMARKS and count >= FEWEST_CONFIGURATIONS:
        statistic, p_value = 0.0, 1.0
        if (ranks != ranks[:, :1]).any():  # where all are equal on every benchmark SciPy divides by zero
            statistic, p_value = map(float, friedmanchisquare(*ranks.T))
        post_hoc = holm([float(2 * ndtr(-abs(means[name] - means[first]) / error)) for name in others])
        # Without Friedman's rejection nothing is: the post hoc test is its second step.
        corrected = dict(zip(others, (max(p, p_value) for p in post_hoc), strict=True))
    intervals = rank_intervals(seeds, higher_is_better=higher_is_better) if seeds is not None else {}
    rows = [
        AverageRank(
            name,
            means[name],
            dict(zip(values, ranks[:, place].tolist(), strict=True)),
            corrected.get(name),
            None if name == first else judge(corrected.get(name), of="benchmarks"),
            intervals.get(name),
        )
        for place, name in enumerate(names)
    ]
    critical = -float(ndtri(LEVEL / (2 * max(1, len(others))))) * error
    ordered = sorted(rows, key=lambda row: (row.mean, row.configuration))
    return RankComparison(tuple(values), tuple(ordered), first, statistic, p_value, critical)


def rank_intervals(
    seeds: Mapping[str, Mapping[str, Sequence[float]]], *, higher_is_better: bool = True
) -> dict[str, tuple[float, float]]:
    """Intervals of average ranks over the same benchmarks, had other seeds been drawn: percentiles of a bootstrap.

    The seeds of each configuration on each benchmark are drawn anew, with replacement, and ranked by their means.
    Benchmarks are not drawn: the intervals say nothing of others, which is what the tests are about.

    Args:
        seeds: a metric's values, by benchmark and configuration; every benchmark has all configurations.
        higher_is_better: the metric's direction.

    Returns:
        The interval of each configuration that holds the share ``1 - LEVEL``; empty where a value is that of one seed.

    Example:
        >>> rank_intervals({"one": {"a": [0.9, 0.8], "b": [0.7, 0.6]}})
        {'a': (1.0, 1.0), 'b': (2.0, 2.0)}
    """
    import numpy as np
    from scipy.stats import rankdata

    names = list(next(iter(seeds.values()), {}))
    if not names or any(len(found) < 2 for row in seeds.values() for found in row.values()):
        return {}
    generator = np.random.default_rng(0)  # fixed: a page that is made again must be the same
    drawn = []
    for row in seeds.values():
        means = []
        for name in names:
            found = np.asarray(row[name], dtype=float)
            means.append(found[generator.integers(0, len(found), (BOOTSTRAPS, len(found)))].mean(axis=1))
        table = np.stack(means, axis=1)
        drawn.append(rankdata(-table if higher_is_better else table, axis=1))
    average = np.mean(drawn, axis=0)
    low, high = np.quantile(average, [LEVEL / 2, 1 - LEVEL / 2], axis=0).tolist()
    return dict(zip(names, zip(low, high, strict=True), strict=True))
