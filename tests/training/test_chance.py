"""Rewards at chance: the binomial's tail, its correction, and stages that note what they choose by."""

from __future__ import annotations

import copy
from math import comb

import numpy as np
import pytest
import torch
from support.components import creation
from support.tiny import all_threads, one_thread

from seu_bench.training.stage import chance_share, guessing_probability

setup_module, teardown_module = one_thread, all_threads


def tail(right: int, count: int, share: float) -> float:
    """The probability of ``right`` or more, summed term by term."""
    return sum(comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(right, count + 1))


@pytest.mark.parametrize(("right", "count"), [(0, 8), (3, 8), (5, 8), (8, 8), (60, 100), (1, 1)])
@pytest.mark.parametrize("classes", [1, 2, 4])
def test_probability_of_guessing(right: int, count: int, classes: int) -> None:
    """It is the binomial's tail at the share of the most frequent class."""
    labels = torch.arange(count) % classes
    share = -(-count // classes) / count
    assert guessing_probability(right / count, labels) == pytest.approx(tail(right, count, share), abs=1e-12)


def test_share_is_corrected_for_the_number_of_rewards() -> None:
    """The level of 5 % is shared by all rewards; without rewards nothing is measured."""
    assert chance_share([]) is None
    assert chance_share([0.049]) == 0 and chance_share([0.049, 0.5]) == 1
    assert chance_share([0.02, 0.5]) == 0.5 and chance_share([0.02, 0.5, 0.3]) == 1
    assert chance_share([1e-9] * 3 + [0.5]) == 0.25


def test_guesses_are_rarely_above_chance() -> None:
    """Of 2000 searches of six epochs whose networks guess, at most 5 % (and some) have a reward above chance."""
    generator, labels = np.random.default_rng(0), torch.arange(300) % 2
    rewards = generator.binomial(300, 0.5, (2000, 6)) / 300
    known = {reward: guessing_probability(reward, labels) for reward in np.unique(rewards)}
    above = [chance_share([known[reward] for reward in search]) != 1 for search in rewards]
    # Four deviations of a binomial above its mean.
    assert 0.01 < np.mean(above) < 0.05 + 4 * (0.05 * 0.95 / 2000) ** 0.5


@pytest.mark.parametrize(("name", "rewards"), [("mdl", 3), ("reuse_first", 3), ("frugal", 5), ("all_new", 0)])
def test_creations_note_their_rewards(name: str, rewards: int) -> None:
    """One for each epoch, or for each path that is compared; a stage that resumes knows the earlier ones."""
    stage = creation(name)
    states = []
    stage.run(pause=lambda stage: states.append(copy.deepcopy(stage.state_dict())))
    assert stage.guessing is not None and len(stage.guessing) == rewards
    if states:
        again = creation(name)
        again.load_state_dict(states[1])
        again.run()
        assert again.guessing == stage.guessing
