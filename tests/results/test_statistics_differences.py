"""Paired differences: the test as SciPy has it, Holm's correction by hand, effects, intervals, and the verdict."""

from __future__ import annotations

import itertools
import json
import math
import random

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from seu_bench.results import compare_paired, holm
from seu_bench.results.statistics import BySeed, PairedDifference, judge, paired_p_value


@st.composite
def pairs(draw: st.DrawFn) -> tuple[dict[int, float], dict[int, float]]:
    """Two samples with at least two seeds in common, and seeds that only one has."""
    seeds = draw(st.lists(st.integers(0, 50), min_size=2, max_size=10, unique=True))
    one = {seed: draw(st.floats(0, 1)) for seed in seeds}
    other = {seed: draw(st.floats(0, 1)) for seed in seeds}
    return one | {1000: 0.5}, other | {2000: 0.5}


def alone(one: BySeed, other: BySeed) -> PairedDifference:
    """One comparison, shown by itself."""
    (found,) = compare_paired([(one, other)])
    return found


def of(*differences: float) -> PairedDifference:
    """These differences, by seeds from 0."""
    return alone(dict(enumerate(differences)), dict.fromkeys(range(len(differences)), 0.0))


#: Student's sleep data (1908): hours gained by ten patients with either drug.
SLEEP = ([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0], [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4])


class TestPairedTest:
    @given(pairs())
    def test_as_scipy(self, samples: tuple[dict[int, float], dict[int, float]]) -> None:
        one, other = samples
        common = sorted(one.keys() & other.keys())
        left, right = np.array([one[seed] for seed in common]), np.array([other[seed] for seed in common])
        if (left - right).std() <= 1e-9:
            return  # SciPy divides by it; see below
        expected = scipy.stats.ttest_rel(left, right).pvalue
        assert paired_p_value(one, other) == pytest.approx(expected, rel=1e-6)
        assert paired_p_value(other, one) == pytest.approx(expected, rel=1e-6)
        if len(common) >= 3:
            assert alone(one, other).verdict == ("significant" if expected < 0.05 else "not significant")

    def test_a_known_one(self) -> None:
        """t = -4.0621, p = 0.002833."""
        one, other = (dict(enumerate(drug)) for drug in SLEEP)
        assert paired_p_value(one, other) == pytest.approx(0.002833, abs=5e-7)

    def test_seeds_that_all_agree(self) -> None:
        """A difference that is the same on every seed is no chance; none is none; rounding is none."""
        one = {0: 0.5, 1: 0.25, 2: 0.75}
        assert (paired_p_value(one, dict(one)), alone(one, dict(one)).verdict) == (1.0, "not significant")
        above = {seed: value + 0.125 for seed, value in one.items()}
        found = alone(above, one)
        assert (found.p_value, found.verdict, found.effect) == (0.0, "significant", None)
        rounded = {seed: float(np.nextafter(value, 1)) for seed, value in one.items()}
        assert alone(one, rounded).verdict == "not significant"
        assert set(alone(one, rounded).by_seed.values()) == {0.0}

    def test_pairs_see_what_samples_by_themselves_do_not(self) -> None:
        """Seeds that differ more than the strategies: the reason for pairs."""
        one = {0: 0.90, 1: 0.70, 2: 0.50, 3: 0.80}
        other = {0: 0.88, 1: 0.69, 2: 0.48, 3: 0.78}
        assert scipy.stats.ttest_ind(list(one.values()), list(other.values()), equal_var=False).pvalue > 0.8
        assert alone(one, other).verdict == "significant"

    @pytest.mark.parametrize("common", [0, 1, 2])
    def test_too_few_seeds(self, common: int) -> None:
        """Nothing is claimed, however far apart they are, and the others of the family are not corrected for it."""
        one = {seed: 0.9 + seed / 1000 for seed in range(5)}
        other = {seed + 5 - common: 0.1 for seed in range(5)}
        assert len(one.keys() & other.keys()) == common
        lower = {seed: value - 0.1 * (1 + seed) for seed, value in one.items()}
        found, tested = compare_paired([(one, other), (one, lower)])
        assert (found.verdict, found.corrected, found.pairs) == ("too few seeds", None, common)
        assert found.effect is None
        assert (found.p_value is None) == (common < 2)
        assert (tested.comparisons, tested.corrected) == (1, tested.p_value)


class TestHolm:
    def test_by_hand(self) -> None:
        """The example of many a textbook: 0.01 * 4, 0.03 * 2 raised to it, 0.04 raised to that, 0.005 * 4 first."""
        assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
        assert holm([0.5, 0.4, 0.9]) == [1.0, 1.0, 1.0]
        assert holm([0.03]) == [0.03]
        assert holm([]) == []

    @given(st.lists(st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.01, 0.05])), max_size=7))
    def test_is_the_closed_test_of_bonferroni(self, p_values: list[float]) -> None:
        """Another way to it: the largest Bonferroni p value of all intersections that a hypothesis is in."""
        places = range(len(p_values))
        subsets = [s for n in range(1, len(p_values) + 1) for s in itertools.combinations(places, n)]
        expected = [
            max(min(1.0, len(s) * min(p_values[place] for place in s)) for s in subsets if mine in s) for mine in places
        ]
        assert holm(p_values) == pytest.approx(expected)

    def test_changes_the_verdict(self) -> None:
        """What is significant by itself is not beside three others that are no clearer."""
        base = dict.fromkeys(range(4), 0.5)
        unclear = {0: 0.60, 1: 0.52, 2: 0.58, 3: 0.54}
        assert 0.05 / 4 < (paired_p_value(unclear, base) or 0) < 0.05
        assert alone(unclear, base).verdict == "significant"
        family = compare_paired([(unclear, base)] * 4)
        assert [found.verdict for found in family] == ["not significant"] * 4
        assert {found.comparisons for found in family} == {4}

    def test_false_alarms(self) -> None:
        """Of families of five comparisons without a difference one in twenty has a significant one, not one in five."""
        generator = np.random.default_rng(0)
        alarms, uncorrected = 0, 0
        for samples in generator.normal(0.5, 0.1, (800, 10, 5)):
            values = [dict(enumerate(sample.tolist())) for sample in samples]
            family = compare_paired(list(zip(values[::2], values[1::2], strict=True)))
            alarms += any(found.verdict == "significant" for found in family)
            uncorrected += any((found.p_value or 1) < 0.05 for found in family)
        assert alarms / 800 == pytest.approx(0.05, abs=4 * math.sqrt(0.05 * 0.95 / 800))
        assert uncorrected / 800 > 0.15

    def test_the_last_word(self) -> None:
        assert [judge(p) for p in (0.0, 0.0499, 0.05, 1.0)] == ["significant"] * 2 + ["not significant"] * 2
        assert (judge(None), judge(None, of="benchmarks")) == ("too few seeds", "too few benchmarks")


class TestEffect:
    def test_by_hand(self) -> None:
        """Differences 1, 2, 3: d = 2 / 1; the factor of two degrees of freedom is gamma(1) / (1 gamma(1/2))."""
        assert of(1, 2, 3).effect == pytest.approx(2 / math.sqrt(math.pi))
        assert of(-1, -2, -3).effect == pytest.approx(-2 / math.sqrt(math.pi))
        assert of(-1, 0, 1).effect == 0.0

    def test_factor_as_it_is_often_approximated(self) -> None:
        """Hedges' 1 - 3 / (4 m - 1), for ten patients m = 9."""
        found = alone(*(dict(enumerate(drug)) for drug in SLEEP))
        assert found.summary is not None and found.summary.std is not None
        cohen = found.summary.mean / found.summary.std
        assert found.effect == pytest.approx(cohen * (1 - 3 / 35), rel=2e-3)


def test_document_is_plain() -> None:
    """All of it is JSON, with the uncorrected p value beside the corrected one."""
    generator = random.Random(0)
    samples = [{seed: generator.random() for seed in range(4)} for _ in range(3)]
    first, second = compare_paired([(samples[0], samples[1]), (samples[0], samples[2])])
    said = json.loads(json.dumps(first.document()))
    assert said["pairs"] == 4 and said["comparisons"] == 2
    assert said["p_holm"] >= said["p_value"] and said["verdict"] == first.verdict
    assert said["low"] <= said["mean"] <= said["high"]
    assert second.document()["hedges_g"] == second.effect
