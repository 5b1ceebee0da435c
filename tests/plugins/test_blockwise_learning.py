"""Q-learning by hand: updates, replay, exploration."""

from __future__ import annotations

import io
import itertools
import random
from collections import Counter

import pytest
import torch
from support.tiny import all_threads, one_thread

from seu_bench_blockwise.qlearning import EpsilonSchedule, QLearner

setup_module, teardown_module = one_thread, all_threads


#: Rewards of two decisions of two and three choices. The best of all, (0, 2), stands beside bad ones; the first
#: decision 1 is better on average.
REWARDS = {(0, 0): 0.1, (0, 1): 0.0, (0, 2): 0.9, (1, 0): 0.6, (1, 1): 0.7, (1, 2): 0.6}


def test_one_update_by_hand() -> None:
    """From the last decision to the first: the reward at the end, half of it before, and the best that follows."""
    learner = QLearner((2, 3), rate=0.5, discount=0.5, initial=0.5)
    learner.learn((1, 2), 0.8)
    # Last: 0.5 + 0.5 (0.8 - 0.5). First: 0.5 + 0.5 (0.4 + 0.5 * 0.65 - 0.5).
    assert learner.values[1][1].tolist() == pytest.approx([0.5, 0.5, 0.65], abs=1e-15)
    assert learner.values[0][0].tolist() == pytest.approx([0.5, 0.6125], abs=1e-15)
    assert learner.values[1][0].tolist() == [0.5] * 3
    learner.learn((1, 0), 0.1)
    # Last: 0.5 + 0.5 (0.1 - 0.5) = 0.3. First: the best that follows is still 0.65, of the other choice.
    assert learner.values[1][1].tolist() == pytest.approx([0.3, 0.5, 0.65], abs=1e-15)
    assert learner.values[0][0].tolist() == pytest.approx([0.5, 0.6125 + 0.5 * (0.05 + 0.5 * 0.65 - 0.6125)], abs=1e-15)


def test_one_update_of_three_by_hand() -> None:
    """A third of the reward is given after each decision before the last; each value is the state's before it."""
    learner = QLearner((2, 2, 2), rate=0.1, discount=1.0, initial=0.0)
    learner.learn((0, 1, 0), 0.9)
    last, middle = 0.09, 0.1 * (0.3 + 0.09)
    assert learner.values[2].tolist() == [[0, 0], [pytest.approx(last), 0]]
    assert learner.values[1].tolist() == [[0, pytest.approx(middle)], [0, 0]]
    assert learner.values[0].tolist() == [[pytest.approx(0.1 * (0.3 + middle)), 0]]


@pytest.mark.parametrize("discount", [1.0, 0.5, 0.0])
def test_converges_to_the_optimum(discount: float) -> None:
    """Visiting all sequences alike the Q-values become those of dynamic programming, and so does the choice."""
    learner = QLearner((2, 3), rate=2e-3, discount=discount, initial=0.5)
    for _ in range(8000):
        for decisions, value in REWARDS.items():
            learner.learn(decisions, value)
    # Backward: the last decision is worth its reward; the first half of what it brings on average, and the best after.
    last = {first: {second: REWARDS[first, second] for second in range(3)} for first in range(2)}
    first = {choice: sum(last[choice].values()) / 3 / 2 + discount * max(last[choice].values()) for choice in range(2)}
    # A step of 0.002 leaves each value within about 0.002 of what it swings about.
    for choice in range(2):
        assert learner.values[1][choice].tolist() == pytest.approx(list(last[choice].values()), abs=1e-6)
    assert learner.values[0][0].tolist() == pytest.approx(list(first.values()), abs=2e-3)
    optimum = max(first, key=lambda choice: first[choice])
    expected = (optimum, max(last[optimum], key=lambda choice: last[optimum][choice]))
    assert learner.decide(0.0) == expected == {1.0: (0, 2), 0.5: (1, 1), 0.0: (1, 1)}[discount]


@pytest.mark.parametrize("seed", range(3))
def test_learns_by_trying(seed: int) -> None:
    """With the epsilon schedule and replay, what was tried leads to the optimum, whose last choice hangs on the one
    before it."""
    random.seed(seed)
    rewards = {
        s: 0.9 if s[1] == 2 * s[0] and s[2] == s[1] else 0.1 * s[0]
        for s in itertools.product(range(2), range(3), range(3))
    }
    learner, epsilon = QLearner((2, 3, 3), rate=0.1), EpsilonSchedule()
    for step in range(200):
        decisions = learner.decide(epsilon.at(step / 200))
        learner.remember(decisions, rewards[decisions], replay=8)
    assert rewards[learner.decide(0.0)] == 0.9
    assert rewards[learner.best] == 0.9
    # By the end it tries the best nine times in ten per decision: far more often than the two in eighteen of chance.
    assert sum(value == 0.9 for _, value in learner.memory[-20:]) > 10


def test_replay() -> None:
    """A new sequence is learned once and remembered ones are learned as often as said, old and new alike."""
    once, twice = QLearner((2, 3), rate=0.1), QLearner((2, 3), rate=0.1)
    once.remember((1, 2), 0.8, replay=3)
    for _ in range(4):
        twice.learn((1, 2), 0.8)
    assert [values.tolist() for values in once.values] == [values.tolist() for values in twice.values]
    assert once.memory == [((1, 2), 0.8)] and twice.memory == []
    # The older sequence was learned once; by replay alone it comes to its reward.
    random.seed(0)
    learner = QLearner((2, 3), rate=0.1)
    learner.remember((0, 1), 1.0)
    assert learner.values[1][0, 1] == pytest.approx(0.55)
    learner.remember((1, 2), 0.2, replay=400)
    assert learner.values[1][0, 1] == pytest.approx(1.0, abs=1e-6)
    assert learner.values[1][1, 2] == pytest.approx(0.2, abs=1e-6)


def test_best_of_the_memory() -> None:
    """The remembered sequence of the highest reward; of equal ones one by lot, or the first."""
    for tie_break, expected in (("first", {(1, 1)}), ("random", {(1, 1), (0, 2)})):
        learner = QLearner((2, 3), tie_break=tie_break)
        for decisions, value in (((0, 0), -0.5), ((1, 1), 0.3), ((0, 2), 0.3), ((1, 0), 0.1)):
            learner.remember(decisions, value)
        assert {learner.best for _ in range(50)} == expected


def test_decisions() -> None:
    """With epsilon 0 the best known is taken, of equal ones the first or one by lot; with 1 every sequence is alike."""
    random.seed(0)
    counts = Counter(QLearner((2, 3)).decide(0.0) for _ in range(6000))
    # Each within five standard deviations of a binomial: 5 * sqrt(6000 * 1/6 * 5/6) = 144.
    assert len(counts) == 6 and all(abs(count - 1000) < 145 for count in counts.values())
    learner = QLearner((2, 3), tie_break="first")
    assert learner.decide(0.0) == (0, 0)
    learner.values[0][0] = [0.1, 0.2]
    learner.values[1][1] = [0.3, 0.7, 0.7]
    assert {learner.decide(0.0) for _ in range(50)} == {(1, 1)}
    random.seed(0)
    counts = Counter(learner.decide(1.0) for _ in range(6000))
    assert len(counts) == 6 and all(abs(count - 1000) < 145 for count in counts.values())
    counts = Counter(learner.decide(0.4) for _ in range(6000))
    # Best with 0.6, and by chance with 0.4 / 2 and 0.4 / 3: 0.8 * 0.7333; 5 * sqrt(6000 * 0.587 * 0.413) = 191.
    assert abs(counts[1, 1] - 6000 * 0.8 * (0.6 + 0.4 / 3)) < 191


def test_state_round_trip() -> None:
    """A state survives a safe checkpoint, is a copy, and goes on bit by bit as the original does."""
    learner = QLearner((2, 3), rate=0.1)
    learner.remember((1, 2), 1 / 3, replay=2)
    file = io.BytesIO()
    torch.save(learner.state_dict(), file)
    kept = [values.tolist() for values in learner.values]
    learner.remember((0, 1), 0.7)
    file.seek(0)
    other = QLearner((2, 3), rate=0.1)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert [values.tolist() for values in other.values] == kept
    assert other.memory == [((1, 2), 1 / 3)]
    other.remember((0, 1), 0.7)
    assert other.state_dict() == learner.state_dict()


# --- epsilon ----------------------------------------------------------------------------------------------------------


def test_epsilon_as_published() -> None:
    """1 for 53 % of the way, then 0.9, 0.8, ... 0.1 for an equal share each."""
    schedule = EpsilonSchedule()
    assert [schedule.at(progress) for progress in (0.0, 0.3, 0.529999)] == [1.0] * 3
    share = 0.47 / 9
    for step in range(9):
        for place in (0.001, 0.5, 0.999):
            found = schedule.at(0.53 + (step + place) * share)
            assert found == pytest.approx(0.9 - 0.1 * step, abs=1e-12)
    assert schedule.at(0.53) == pytest.approx(0.9) and schedule.at(1.0) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("schedule", "progress", "expected"),
    [
        (EpsilonSchedule(explore=1.0), 0.999, 1.0),
        (EpsilonSchedule(explore=1.0), 1.0, 1.0),
        (EpsilonSchedule(explore=0.0), 0.0, 0.9),
        (EpsilonSchedule(explore=0.0), 0.999, 0.1),
        (EpsilonSchedule(0.5, 0.5, 0.2), 0.1, 0.5),
        (EpsilonSchedule(0.5, 0.5, 0.2), 0.9, 0.5),
        (EpsilonSchedule(0.0, 0.9, 0.5), 0.49, 0.0),
        (EpsilonSchedule(0.0, 0.9, 0.5), 0.5, 0.1),
        (EpsilonSchedule(0.0, 0.9, 0.5), 0.999, 0.9),
    ],
)
def test_epsilon_at_its_corners(schedule: EpsilonSchedule, progress: float, expected: float) -> None:
    """Nothing but exploring, no exploring, constant and rising shares."""
    assert schedule.at(progress) == pytest.approx(expected, abs=1e-12)
