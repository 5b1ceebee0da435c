"""Multinomial distribution learning gives the specification's numbers, samples reproducibly, survives a checkpoint."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from seu_bench_seu.mdl import MultinomialTables, reward_minus_penalty, update_probabilities

Array = NDArray[np.float64]

EIGHT_E = np.array([5, 4, 4, 1, 3, 3, 2, 2], dtype=float)
EIGHT_A = np.array([0.50, 0.62, 0.55, 0.70, 0.40, 0.58, 0.66, 0.30])
THREE_E, THREE_A = np.array([2.0, 1.0, 1.0]), np.array([0.5, 0.6, 0.4])


def digits(values: Array) -> str:
    """Six decimals each, as the specification prints them."""
    return " ".join(f"{value:.6f}" for value in values)


def test_reward_minus_penalty() -> None:
    """A candidate gains for each that it beats with fewer epochs and loses for each that beats it with fewer."""
    assert reward_minus_penalty(THREE_A, THREE_E).tolist() == [-1, 1, 0]
    assert reward_minus_penalty(EIGHT_A, EIGHT_E).tolist() == [-5, -1, -2, 7, -2, 0, 4, -1]


@pytest.mark.parametrize(
    ("scope", "normalisation", "expected"),
    [
        ("all", "sum", "0.323333 0.343333 0.333333"),
        ("all", "softmax", "0.330006 0.336672 0.333322"),
        ("sampled", "sum", "0.330033 0.339934 0.330033"),
        ("sampled", "softmax", "0.332220 0.335559 0.332220"),
    ],
)
def test_three_candidates(scope: Any, normalisation: Any, expected: str) -> None:
    """The specification's first vector, under each of the four variants; candidate 1 was sampled."""
    start = np.full(3, 1 / 3)
    assert (
        digits(update_probabilities(start, THREE_A, THREE_E, 1, scope=scope, normalisation=normalisation)) == expected
    )
    assert start.tolist() == [1 / 3] * 3


@pytest.mark.parametrize(
    ("scope", "normalisation", "expected"),
    [
        ("all", "sum", "0.075000 0.115000 0.105000 0.195000 0.105000 0.125000 0.165000 0.115000"),
        ("all", "softmax", "0.118829 0.123678 0.122448 0.133979 0.122448 0.124921 0.130019 0.123678"),
        ("sampled", "sum", "0.116822 0.116822 0.116822 0.182243 0.116822 0.116822 0.116822 0.116822"),
    ],
)
def test_eight_candidates(scope: Any, normalisation: Any, expected: str) -> None:
    """The specification's second vector; operation 3 was sampled."""
    start = np.full(8, 1 / 8)
    assert (
        digits(update_probabilities(start, EIGHT_A, EIGHT_E, 3, scope=scope, normalisation=normalisation)) == expected
    )


def test_penalty_cannot_make_a_probability_negative() -> None:
    """A probability stops at 1e-8 before the sum normalises."""
    p = update_probabilities(np.array([0.005, 0.995]), np.array([0.1, 0.2]), np.array([2.0, 1.0]), 0)
    assert p.tolist() == [1e-8 / (0.995 + 1e-8), 0.995 / (0.995 + 1e-8)]
    assert p.sum() == pytest.approx(1, abs=1e-15)


def test_never_sampled_neither_gains_nor_loses() -> None:
    """A candidate without a record is not compared with those that have one, either way."""
    accuracy, epochs = np.array([0.0, 0.9, 0.1, 0.0]), np.array([0.0, 1.0, 3.0, 0.0])
    assert reward_minus_penalty(accuracy, epochs).tolist() == [0, 1, -1, 0]


def tables(**more: Any) -> MultinomialTables:
    options: dict[str, Any] = {"alpha": 0.01, "scope": "sampled", "normalisation": "sum"}
    return MultinomialTables([8, 3, 1], **{**options, **more})


def test_learning_records_then_moves() -> None:
    """The sampled candidate's accuracy becomes the one measured, its epochs grow by one; then the rule applies."""
    made = tables(first_epochs=[[0] * 8, [2, 2, 0], [0]])
    made.learn([4, 0, 0], 0.5)
    made.learn([4, 2, 0], 0.6)
    assert made.accuracy[0].tolist() == [0, 0, 0, 0, 0.6, 0, 0, 0]
    assert made.epochs[0].tolist() == [0, 0, 0, 0, 2, 0, 0, 0]
    assert made.accuracy[1].tolist() == [0.5, 0, 0.6] and made.epochs[1].tolist() == [3, 2, 1]
    # Place 1: first candidate 0 has most epochs and the best accuracy: nothing. Then candidate 2 beats both.
    assert made.probabilities[1].tolist() == pytest.approx([1 / 3 / 1.02] * 2 + [(1 / 3 + 0.02) / 1.02], abs=1e-15)
    assert made.probabilities[0].tolist() == [1 / 8] * 8 and made.probabilities[2].tolist() == [1.0]


def test_sampling_is_by_torchs_global_generator() -> None:
    """The same seed gives the same samples; every candidate is drawn as often as its probability says."""
    made = tables()
    torch.manual_seed(3)
    first = [made.sample() for _ in range(20)]
    torch.manual_seed(3)
    assert [made.sample() for _ in range(20)] == first
    torch.manual_seed(3)
    assert first[0] == [int(torch.multinomial(torch.from_numpy(p), 1)) for p in made.probabilities]
    torch.manual_seed(4)
    assert [made.sample() for _ in range(20)] != first
    made.probabilities[1] = np.array([0.0, 0.75, 0.25])
    drawn = np.bincount([made.sample()[1] for _ in range(1000)], minlength=3)
    # Five standard deviations of a binomial: 5 * sqrt(1000 * 0.75 * 0.25) = 68.
    assert drawn[0] == 0 and abs(drawn[1] - 750) < 69


def test_softmax_of_probabilities_flattens_them() -> None:
    """Repeated softmax takes a certain choice back to a uniform one, as the specification's series says."""
    p, nothing = np.eye(8)[0], np.zeros(8)
    series = []
    for _ in range(4):
        p = update_probabilities(p, nothing, nothing, 0, normalisation="softmax")
        series.append(p[0])
    assert digits(np.array(series)) == "0.279708 0.145654 0.127605 0.125326"
