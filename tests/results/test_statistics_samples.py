"""Mean, deviation and interval: as NumPy and SciPy have them, and where these have none."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from seu_bench.results.statistics import SampleSummary, summarize

#: Accuracies, sizes and seconds: what a column holds.
VALUES = st.one_of(
    st.floats(0, 1, allow_subnormal=False),
    st.integers(0, 2**40).map(float),
    st.floats(-1e6, 1e6, allow_subnormal=False),
)
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
