"""Statistics: as NumPy and SciPy have them, Holm's correction by hand, and the verdict."""

from __future__ import annotations

import itertools
import json
import math
from statistics import NormalDist

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from seu_bench.results import compare_paired, compare_ranks, summarize
from seu_bench.results.statistics import (
    BySeed,
    PairedDifference,
    holm,
    on_common_seeds,
    rank_by_common_seeds,
)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[dict[int, float], dict[int, float]]:
    """Two samples with at least two seeds in common, and seeds that only one has."""
    seeds = draw(st.lists(st.integers(0, 50), min_size=2, max_size=10, unique=True))
    one, other = ({seed: draw(st.floats(0, 1)) for seed in seeds} for _ in range(2))
    return one | {1000: 0.5}, other | {2000: 0.5}


def alone(one: BySeed, other: BySeed) -> PairedDifference:
    """One comparison, shown by itself."""
    (found,) = compare_paired([(one, other)])
    return found


def blocks(rows: list[list[float]]) -> dict[str, dict[str, float]]:
    """Values of configurations a, b, c, ... on benchmarks 0, 1, ..."""
    return {str(place): dict(zip("abcdefgh", row, strict=False)) for place, row in enumerate(rows)}


class TestSummary:
    @given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=10))
    def test_as_numpy_and_scipy(self, sample: list[float]) -> None:
        found = summarize(sample)
        assert found is not None and found.std is not None and found.number == len(sample)
        assert found.mean == pytest.approx(np.mean(sample), rel=1e-9, abs=1e-9)
        assert found.std == pytest.approx(np.std(sample, ddof=1), rel=1e-6, abs=1e-6)
        if found.std > 1e-6:
            error = found.std / math.sqrt(len(sample))
            low, high = scipy.stats.t.interval(0.95, len(sample) - 1, loc=found.mean, scale=error)
            assert (found.low, found.high) == (pytest.approx(low, rel=1e-6), pytest.approx(high, rel=1e-6))

    def test_equal_values_have_no_deviation(self) -> None:
        found = summarize([0.1] * 10)
        assert found is not None and (found.mean, found.std, found.low, found.high) == (0.1, 0.0, 0.1, 0.1)

    def test_where_there_is_none(self) -> None:
        for values in ([], [None], [0.5, None], [0.5, math.nan], [math.inf, 0.5]):
            assert summarize(values) is None
        one = summarize([0.5])
        assert one is not None and (one.mean, one.std, one.low) == (0.5, None, None)
        assert summarize([1e308, -1e308, 1e308]) is None  # too large to count with


class TestPairedTest:
    @given(pairs())
    def test_as_scipy(self, samples: tuple[dict[int, float], dict[int, float]]) -> None:
        one, other = samples
        common = sorted(one.keys() & other.keys())
        left, right = np.array([one[seed] for seed in common]), np.array([other[seed] for seed in common])
        if (left - right).std() <= 1e-9:
            return  # SciPy divides by it; see below
        expected = scipy.stats.ttest_rel(left, right).pvalue
        assert alone(one, other).p_value == pytest.approx(expected, rel=1e-6)
        if len(common) >= 3:
            assert alone(one, other).verdict == ("significant" if expected < 0.05 else "not significant")

    def test_seeds_that_all_agree(self) -> None:
        """A difference that is the same on every seed is no chance; none is none; rounding is none."""
        one = {0: 0.5, 1: 0.25, 2: 0.75}
        assert (alone(one, dict(one)).p_value, alone(one, dict(one)).verdict) == (1.0, "not significant")
        found = alone({seed: value + 0.125 for seed, value in one.items()}, one)
        assert (found.p_value, found.verdict, found.hedges_g) == (0.0, "significant", None)
        rounded = {seed: float(np.nextafter(value, 1)) for seed, value in one.items()}
        assert alone(one, rounded).verdict == "not significant"
        assert set(alone(one, rounded).by_seed.values()) == {0.0}

    @pytest.mark.parametrize("common", [0, 1, 2])
    def test_too_few_seeds(self, common: int) -> None:
        """Nothing is claimed, however far apart they are, and the others of the family are not corrected for it."""
        one = {seed: 0.9 + seed / 1000 for seed in range(5)}
        other = {seed + 5 - common: 0.1 for seed in range(5)}
        lower = {seed: value - 0.1 * (1 + seed) for seed, value in one.items()}
        found, tested = compare_paired([(one, other), (one, lower)])
        assert (found.verdict, found.p_holm, found.pairs, found.hedges_g) == ("too few seeds", None, common, None)
        assert (found.p_value is None) == (common < 2)
        assert (tested.comparisons, tested.p_holm) == (1, tested.p_value)

    def test_effect_by_hand(self) -> None:
        """Differences 1, 2, 3: d = 2 / 1; the factor of two degrees of freedom is gamma(1) / (1 gamma(1/2))."""
        found = alone({0: 1, 1: 2, 2: 3}, dict.fromkeys(range(3), 0))
        assert found.hedges_g == pytest.approx(2 / math.sqrt(math.pi))
        said = json.loads(json.dumps(found.document()))
        assert (said["hedges_g"], said["mean"], said["pairs"], said["verdict"]) == (found.hedges_g, 2, 3, found.verdict)


class TestHolm:
    @given(st.lists(st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.01, 0.05])), max_size=7))
    def test_is_the_closed_test_of_bonferroni(self, p_values: list[float]) -> None:
        """Another way to it: the largest Bonferroni p value of all intersections that a hypothesis is in."""
        places = range(len(p_values))
        subsets = [s for n in range(1, len(p_values) + 1) for s in itertools.combinations(places, n)]
        expected = [
            max(min(1.0, len(s) * min(p_values[place] for place in s)) for s in subsets if mine in s) for mine in places
        ]
        assert holm(p_values) == pytest.approx(expected)

    def test_by_hand(self) -> None:
        assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])

    def test_false_alarms(self) -> None:
        """Of families of five comparisons without a difference one in twenty has a significant one, not one in five."""
        alarms, uncorrected = 0, 0
        for samples in np.random.default_rng(0).normal(0.5, 0.1, (800, 10, 5)):
            values = [dict(enumerate(sample.tolist())) for sample in samples]
            family = compare_paired(list(zip(values[::2], values[1::2], strict=True)))
            alarms += any(found.verdict == "significant" for found in family)
            uncorrected += any((found.p_value or 1) < 0.05 for found in family)
        assert alarms / 800 == pytest.approx(0.05, abs=4 * math.sqrt(0.05 * 0.95 / 800))
        assert uncorrected / 800 > 0.15


class TestAverageRanks:
    def test_ties_by_hand(self) -> None:
        """The best has rank 1; what is equal shares the mean of the ranks."""
        found = compare_ranks(blocks([[0.9, 0.8, 0.8, 0.1], [0.5, 0.7, 0.6, 0.5], [0.3, 0.3, 0.3, 0.3]]))
        ranks = {row.configuration: list(row.ranks.values()) for row in found.rows}
        assert ranks == {"a": [1, 3.5, 2.5], "b": [2.5, 1, 2.5], "c": [2.5, 2, 2.5], "d": [4, 3.5, 2.5]}
        assert [row.configuration for row in found.rows] == ["b", "a", "c", "d"]
        lower = compare_ranks(blocks([[3.0, 1.0, 2.0]] * 3), higher_is_better=False)
        assert [(row.configuration, row.average_rank) for row in lower.rows] == [("b", 1), ("c", 2), ("a", 3)]

    @pytest.mark.parametrize("decimals", [1, 6])
    def test_friedman_as_scipy(self, decimals: int) -> None:
        """With many ties and with none."""
        table = np.random.default_rng(0).random((6, 5)).round(decimals)
        found = compare_ranks(blocks(table.tolist()))
        assert (found.friedman_chi_squared, found.friedman_p_value) == pytest.approx(
            scipy.stats.friedmanchisquare(*table.T)
        )

    def test_post_hoc_by_hand(self) -> None:
        """Ten benchmarks of four that always rank alike: sqrt(4 * 5 / 60) of a normal distribution, Holm of three."""
        found = compare_ranks(blocks([[0.4, 0.3, 0.2, 0.1]] * 10))
        p_values = [2 * (1 - NormalDist().cdf(step / math.sqrt(20 / 60))) for step in (1, 2, 3)]
        expected = [p_values[0], 2 * p_values[1], found.friedman_p_value]
        assert [row.p_holm for row in found.rows] == [None, *(pytest.approx(it, abs=1e-4) for it in expected)]
        assert [row.verdict for row in found.rows] == [None, "not significant", "significant", "significant"]
        # Demsar's table of Bonferroni-Dunn: q(0.05) of four is 2.394.
        assert found.critical_difference == pytest.approx(2.394 * math.sqrt(20 / 60), abs=5e-4)

    def test_nothing_without_friedman(self) -> None:
        """Where Friedman does not reject, no pair is told apart, however far apart two are."""
        found = compare_ranks(blocks([[4, 1, 3, 2], [4, 1, 2, 3], [3, 2, 4, 1]]))
        assert (found.friedman_p_value or 0) > 0.05
        assert {row.verdict for row in found.rows[1:]} == {"not significant"}
        equal = compare_ranks(blocks([[0.5] * 3] * 4))
        assert (equal.friedman_chi_squared, equal.friedman_p_value) == (0.0, 1.0)

    @pytest.mark.parametrize(("benchmarks", "configurations"), [(2, 5), (5, 2), (4, 1)])
    def test_too_few(self, benchmarks: int, configurations: int) -> None:
        """Ranks, and no word on significance."""
        found = compare_ranks(blocks([[1.0 - place / 10 for place in range(configurations)]] * benchmarks))
        assert [row.average_rank for row in found.rows] == list(range(1, configurations + 1))
        assert [row.verdict for row in found.rows] == [None, *["too few benchmarks"] * (configurations - 1)]

    @pytest.mark.parametrize("values", [{}, {"one": {"a": 1.0, "b": 2.0}, "two": {"a": 1.0}}])
    def test_what_is_no_complete_table(self, values: dict[str, dict[str, float]]) -> None:
        with pytest.raises(ValueError, match="every configuration"):
            compare_ranks(values)


class TestCommonSeeds:
    def test_two_are_compared_on_the_seeds_that_both_have(self) -> None:
        easy, hard = {0: 0.9, 1: 0.9, 2: 0.9}, {3: 0.1, 4: 0.1}
        samples = [easy | hard, dict.fromkeys(range(5), 0.95), dict.fromkeys(range(3), 0.85), easy, {0: 1.0}]
        assert rank_by_common_seeds(samples) == [2, 1, 4, 2, None]
        assert rank_by_common_seeds([{0: 0.1, 1: 0.2, 2: 0.3}, {0: 0.3, 1: 0.2, 2: 0.1}, {}]) == [1, 1, None]
        assert rank_by_common_seeds([{7: 0.1}, {7: 0.2}]) == [2, 1]

    def test_restriction(self) -> None:
        """Of two that would leave too few together the one with more of the usual seeds stays."""
        ten = dict.fromkeys(range(10), 0.5)
        some = {
            "ten": ten,
            "same": ten,
            "first": dict.fromkeys(range(4), 0.1),
            "last": dict.fromkeys(range(5, 10), 0.2),
        }
        assert on_common_seeds(some) == {
            name: dict.fromkeys(range(5, 10), some[name][9]) for name in ("ten", "same", "last")
        }
