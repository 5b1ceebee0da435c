"""The least difference that is found: against a simulation, and against what is known."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from seu_bench.results import detectable_effect


@pytest.mark.parametrize(("pairs", "expected"), [(3, 3.264), (5, 1.682), (10, 0.996)])
def test_known_ones(pairs: int, expected: float) -> None:
    """Of three, five and ten seeds."""
    assert detectable_effect(pairs) == pytest.approx(expected, abs=1e-3)


def test_pairs_for_a_medium_effect() -> None:
    """A difference of half a deviation takes 34 pairs, as tables have it (Cohen 1988)."""
    fewer, enough = detectable_effect(33), detectable_effect(34)
    assert fewer is not None and enough is not None
    assert enough <= 0.5 < fewer


@pytest.mark.parametrize(("pairs", "comparisons"), [(3, 1), (5, 4), (10, 1)])
def test_simulated(pairs: int, comparisons: int) -> None:
    """Of 20,000 experiments with that difference four in five are found by SciPy's test."""
    effect = detectable_effect(pairs, comparisons)
    assert effect is not None
    samples = np.random.default_rng(0).normal(effect, 1.0, (20_000, pairs))
    found = scipy.stats.ttest_1samp(samples, 0.0, axis=1).pvalue < 0.05 / comparisons
    assert found.mean() == pytest.approx(0.8, abs=0.012)


def test_one_pair_finds_nothing() -> None:
    assert detectable_effect(1) is None
