"""Mean, deviation, interval and the test of a difference: as NumPy and SciPy have them, and where these have none."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from seu_bench.results.leaderboard.sample_summary import SampleSummary, paired_p_value, summarize, verdict

#: Accuracies, sizes and seconds: what a column holds.
VALUES = st.one_of(st.floats(0, 1), st.integers(0, 2**40).map(float), st.floats(-1e6, 1e6))
SAMPLES = st.lists(VALUES, min_size=2, max_size=12)


class TestSpread:
    @given(SAMPLES)
    def test_as_numpy_and_scipy(self, sample: list[float]) -> None:
        found = summarize(sample)
        assert found is not None and found.std is not None
        size = max(map(abs, sample))
        assert found.number == len(sample)
        assert found.mean == pytest.approx(np.mean(sample), rel=1e-12, abs=1e-12 * size)
        # NumPy's own rounding shows where the deviation is small beside the values.
        assert found.std == pytest.approx(np.std(sample, ddof=1), rel=1e-9, abs=1e-12 * size)
        error = found.std / math.sqrt(len(sample))
        if error > 0:
            low, high = scipy.stats.t.interval(0.95, len(sample) - 1, loc=found.mean, scale=error)
            assert (found.low, found.high) == (pytest.approx(low, rel=1e-9), pytest.approx(high, rel=1e-9))

    def test_by_hand(self) -> None:
        """1, 2, 3: mean 2, deviation 1; t(0.975, 2) = 4.302652729911275 by tables."""
        found = summarize([1, 2, 3])
        assert found is not None
        assert (found.number, found.mean, found.std) == (3, 2.0, 1.0)
        half = 4.302652729911275 / math.sqrt(3)
        assert (found.low, found.high) == (pytest.approx(2 - half), pytest.approx(2 + half))

    @given(VALUES, st.integers(2, 20))
    def test_equal_values(self, value: float, number: int) -> None:
        """Exactly no deviation, whatever the value is."""
        assert summarize([value] * number) == SampleSummary(number, value, 0.0, value, value)

    @given(VALUES)
    def test_one_value(self, value: float) -> None:
        assert summarize([value]) == SampleSummary(1, value)

    @pytest.mark.parametrize("sample", [[], [None], [0.5, None], [0.5, math.nan], [math.inf, 0.5]])
    def test_what_was_not_measured(self, sample: list[float | None]) -> None:
        assert summarize(sample) is None

    def test_numbers_too_large_to_count_with(self) -> None:
        """A stranger's record may hold them: no error, and no number that would be none."""
        assert summarize([1.7e308, -1.7e308]) is None
        assert summarize([1e300, 0.0, -1e300]) == SampleSummary(3, 0.0)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[dict[int, float], dict[int, float]]:
    """Two samples with at least two seeds in common, and seeds that only one has."""
    seeds = draw(st.lists(st.integers(0, 50), min_size=2, max_size=10, unique=True))
    one = {seed: draw(st.floats(0, 1)) for seed in seeds}
    other = {seed: draw(st.floats(0, 1)) for seed in seeds}
    return one | {1000: 0.5}, other | {2000: 0.5}


class TestDifference:
    @given(pairs())
    def test_as_scipy(self, samples: tuple[dict[int, float], dict[int, float]]) -> None:
        one, other = samples
        common = sorted(one.keys() & other.keys())
        left, right = np.array([one[seed] for seed in common]), np.array([other[seed] for seed in common])
        differences = left - right
        if differences.std() <= 1e-9:
            return  # SciPy divides by it; see below
        expected = scipy.stats.ttest_rel(left, right).pvalue
        assert paired_p_value(one, other) == pytest.approx(expected, rel=1e-6)
        assert paired_p_value(other, one) == pytest.approx(expected, rel=1e-6)
        if len(common) >= 3:
            assert verdict(one, other) == ("significant" if expected < 0.05 else "not significant")

    def test_a_known_one(self) -> None:
        """Student's sleep data (1908): t = -4.0621, p = 0.002833 for ten patients."""
        drug = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
        other = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
        p_value = paired_p_value(dict(enumerate(drug)), dict(enumerate(other)))
        assert p_value == pytest.approx(0.002833, abs=5e-7)

    def test_seeds_that_all_agree(self) -> None:
        """A difference that is the same on every seed is no chance; none is none; rounding is none."""
        one = {0: 0.5, 1: 0.25, 2: 0.75}
        assert (paired_p_value(one, dict(one)), verdict(one, dict(one))) == (1.0, "not significant")
        above = {seed: value + 0.125 for seed, value in one.items()}
        assert (paired_p_value(one, above), verdict(one, above)) == (0.0, "significant")
        rounded = {seed: np.nextafter(value, 1) for seed, value in one.items()}
        assert verdict(one, rounded) == "not significant"

    def test_pairs_see_what_samples_by_themselves_do_not(self) -> None:
        """Seeds that differ more than the strategies: the reason for pairs."""
        one = {0: 0.90, 1: 0.70, 2: 0.50, 3: 0.80}
        other = {0: 0.88, 1: 0.69, 2: 0.48, 3: 0.78}
        assert scipy.stats.ttest_ind(list(one.values()), list(other.values()), equal_var=False).pvalue > 0.8
        assert verdict(one, other) == "significant"

    @pytest.mark.parametrize("common", [0, 1, 2])
    def test_too_few_seeds(self, common: int) -> None:
        """Nothing is claimed, however far apart they are."""
        one = {seed: 0.9 + seed / 1000 for seed in range(5)}
        other = {seed + 5 - common: 0.1 for seed in range(5)}
        assert len(one.keys() & other.keys()) == common
        assert verdict(one, other) == "too few seeds"
        assert (paired_p_value(one, other) is None) == (common < 2)

    def test_false_alarms(self) -> None:
        """Where there is no difference, one test in twenty says that there is one."""
        generator = np.random.default_rng(0)
        samples = generator.normal(0.5, 0.1, (4000, 2, 5))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            significant = sum(
                verdict(dict(enumerate(one)), dict(enumerate(other))) == "significant" for one, other in samples
            )
        assert significant / 4000 == pytest.approx(0.05, abs=4 * math.sqrt(0.05 * 0.95 / 4000))
