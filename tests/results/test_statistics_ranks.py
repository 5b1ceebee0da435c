"""Average ranks over benchmarks: by hand, Friedman's test as SciPy has it, ties, and the post hoc test."""

from __future__ import annotations

import json
import math
from statistics import NormalDist

import numpy as np
import pytest
import scipy.stats

from seu_bench.results import compare_ranks
from seu_bench.results.statistics import on_common_seeds, rank_by_common_seeds


def blocks(rows: list[list[float]]) -> dict[str, dict[str, float]]:
    """Values of configurations a, b, c, ... on benchmarks 0, 1, ..."""
    return {str(place): dict(zip("abcdefgh", row, strict=False)) for place, row in enumerate(rows)}


def test_ranks_with_ties_by_hand() -> None:
    """The best has rank 1; what is equal shares the mean of the ranks."""
    found = compare_ranks(blocks([[0.9, 0.8, 0.8, 0.1], [0.5, 0.7, 0.6, 0.5], [0.3, 0.3, 0.3, 0.3]]))
    ranks = {row.configuration: list(row.ranks.values()) for row in found.rows}
    assert ranks == {"a": [1, 3.5, 2.5], "b": [2.5, 1, 2.5], "c": [2.5, 2, 2.5], "d": [4, 3.5, 2.5]}
    assert [row.configuration for row in found.rows] == ["b", "a", "c", "d"]
    assert [row.mean for row in found.rows] == pytest.approx([2, 7 / 3, 7 / 3, 10 / 3])
    assert found.benchmarks == ("0", "1", "2")


def test_lower_may_be_better() -> None:
    found = compare_ranks(blocks([[3.0, 1.0, 2.0]] * 3), higher_is_better=False)
    assert [(row.configuration, row.mean) for row in found.rows] == [("b", 1), ("c", 2), ("a", 3)]


@pytest.mark.parametrize("decimals", [1, 6])
def test_friedman_as_scipy(decimals: int) -> None:
    """With many ties and with none."""
    table = np.random.default_rng(0).random((6, 5)).round(decimals)
    found = compare_ranks(blocks(table.tolist()))
    assert (found.statistic, found.p_value) == pytest.approx(scipy.stats.friedmanchisquare(*table.T))


def test_friedman_by_hand() -> None:
    """Demsar's formula without ties: 12 N / (k (k + 1)) (sum of R^2 - k (k + 1)^2 / 4)."""
    found = compare_ranks(blocks([[4, 3, 2, 1], [4, 2, 3, 1], [3, 4, 2, 1], [4, 3, 1, 2], [4, 3, 2, 1]]))
    squares = sum(row.mean**2 for row in found.rows)
    assert found.statistic == pytest.approx(12 * 5 / 20 * (squares - 4 * 25 / 4))


def test_post_hoc_by_hand() -> None:
    """Ten benchmarks of four that always rank alike: by sqrt(4 * 5 / 60) of a normal distribution, Holm of three."""
    found = compare_ranks(blocks([[0.4, 0.3, 0.2, 0.1]] * 10))
    p_values = [2 * (1 - NormalDist().cdf(step / math.sqrt(20 / 60))) for step in (1, 2, 3)]
    assert [row.corrected for row in found.rows] == [
        None,
        pytest.approx(p_values[0]),
        pytest.approx(2 * p_values[1]),
        pytest.approx(found.p_value, abs=1e-4),
    ]
    assert [row.verdict for row in found.rows] == [None, "not significant", "significant", "significant"]
    # Demsar's table of Bonferroni-Dunn: q(0.05) of four is 2.394.
    assert found.critical_difference == pytest.approx(2.394 * math.sqrt(20 / 60), abs=5e-4)


def test_another_control() -> None:
    found = compare_ranks(blocks([[0.4, 0.3, 0.2, 0.1]] * 10), control="d")
    assert found.control == "d"
    assert [row.verdict for row in found.rows] == ["significant", "significant", "not significant", None]


def test_nothing_without_friedman() -> None:
    """Where Friedman does not reject, no pair is told apart, however far apart two are."""
    rows = [[4, 1, 3, 2], [4, 1, 2, 3], [3, 2, 4, 1]]
    found = compare_ranks(blocks([[float(value) for value in row] for row in rows]))
    assert found.p_value is not None and found.p_value > 0.05
    assert {row.verdict for row in found.rows[1:]} == {"not significant"}


def test_all_equal() -> None:
    found = compare_ranks(blocks([[0.5] * 3] * 4))
    assert (found.statistic, found.p_value) == (0.0, 1.0)
    assert [row.mean for row in found.rows] == [2.0] * 3


@pytest.mark.parametrize(("benchmarks", "configurations"), [(2, 5), (1, 3), (5, 2), (4, 1)])
def test_too_few(benchmarks: int, configurations: int) -> None:
    """Ranks, and no word on significance."""
    found = compare_ranks(blocks([[1.0 - place / 10 for place in range(configurations)]] * benchmarks))
    assert [row.mean for row in found.rows] == list(range(1, configurations + 1))
    assert (found.statistic, found.p_value) == (None, None)
    assert [row.verdict for row in found.rows] == [None, *["too few benchmarks"] * (configurations - 1)]


def test_what_is_no_complete_table() -> None:
    with pytest.raises(ValueError, match="every configuration"):
        compare_ranks({"one": {"a": 1.0, "b": 2.0}, "two": {"a": 1.0}})
    with pytest.raises(ValueError, match="every configuration"):
        compare_ranks({})
    with pytest.raises(ValueError, match="'z' is none of"):
        compare_ranks(blocks([[1.0, 2.0, 3.0]] * 3), control="z")


def test_document_is_plain() -> None:
    found = compare_ranks(blocks([[0.4, 0.3, 0.2, 0.1]] * 10))
    said = json.loads(json.dumps(found.document()))
    assert said["control"] == "a" and said["rows"][0]["average_rank"] == 1
    assert said["rows"][3]["verdict"] == "significant"


class TestCommonSeeds:
    def test_two_are_compared_on_the_seeds_that_both_have(self) -> None:
        easy, hard = {0: 0.9, 1: 0.9, 2: 0.9}, {3: 0.1, 4: 0.1}
        samples = [easy | hard, dict.fromkeys(range(5), 0.95), dict.fromkeys(range(3), 0.85), easy, {0: 1.0}]
        assert rank_by_common_seeds(samples) == [2, 1, 4, 2, None]

    def test_equal_but_for_rounding(self) -> None:
        assert rank_by_common_seeds([{0: 0.1, 1: 0.2, 2: 0.3}, {0: 0.3, 1: 0.2, 2: 0.1}, {}]) == [1, 1, None]

    def test_one_seed_of_all_is_enough(self) -> None:
        assert rank_by_common_seeds([{7: 0.1}, {7: 0.2}]) == [2, 1]
        assert rank_by_common_seeds([]) == []

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
