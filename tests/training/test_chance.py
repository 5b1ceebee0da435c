"""Rewards at chance: the binomial's tail, its correction, and stages that note what they choose by."""

from __future__ import annotations

import copy
from math import comb

import numpy as np
import pytest
import torch
from support.components import creation, search_task
from support.tiny import all_threads, one_thread, registry

from seu_bench.training.monitoring.learning import chance_share, guessing_probability

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


def test_a_constant_answer_is_a_guess() -> None:
    """Where one class is frequent, naming it always is no reward above chance; more than that is."""
    labels = (torch.arange(400) % 10 == 0).long()
    assert chance_share([guessing_probability(0.9, labels)]) == 1
    assert chance_share([guessing_probability(0.96, labels)]) == 0


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


@pytest.mark.parametrize(
    ("name", "options", "rewards"),
    [
        ("mdl", {}, 3),
        ("darts", {"epochs": 2}, 2),
        ("blockwise", {}, 3),
        ("blockwise", {"budget": "scratch", "samples": 2, "scratch_epochs": 2}, 2),
        ("random", {}, 0),
        ("zero_cost", {"candidates": 2}, 0),
    ],
)
@pytest.mark.long
def test_searches_note_their_rewards(name: str, options: dict[str, object], rewards: int) -> None:
    """One for each architecture or epoch that is scored; what has no rewards measures nothing."""
    factory = registry().searchers.find(name).factory
    stage, seen = factory.build(factory.options(**options), search_task()), list[float | None]()
    stage.run(lambda progress: seen.append(progress.chance_share))
    assert stage.guessing is not None and len(stage.guessing) == rewards
    measured = [report.accuracy for report in stage.curve if report.accuracy is not None]
    labels = torch.cat([y for _, y in search_task().images.halves()[1].batches(99, shuffle=False)])
    assert stage.guessing == [guessing_probability(value, labels) for value in measured]
    assert seen[-1] == chance_share(stage.guessing) and set(seen[:-1]) <= {None}


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
