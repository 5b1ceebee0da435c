"""Q-learning by hand: updates, replay, exploration."""

from __future__ import annotations

import random
from collections import Counter

import pytest
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
