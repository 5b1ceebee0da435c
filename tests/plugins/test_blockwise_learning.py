"""Q-learning by hand: updates, replay, exploration, which decisions a unit takes, and their reward."""

from __future__ import annotations

import io
import itertools
import math
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from support.plugins.blockwise import SCHEDULE, every_space, search_task
from support.tiny import all_threads, disturb, one_thread
from torch import Tensor, nn

from seu_bench.search_space import EDGES, OPERATIONS, SearchSpace
from seu_bench.training.sampling import genotype_network
from seu_bench_blockwise import BlockwiseOptions
from seu_bench_blockwise.agent import Agent, density, reward, unit_macs
from seu_bench_blockwise.decisions import decision_sizes, decoded
from seu_bench_blockwise.qlearning import EpsilonSchedule, QLearner

setup_module, teardown_module = one_thread, all_threads


def agent(space: SearchSpace | None = None, **options: Any) -> Agent:
    return Agent(BlockwiseOptions(**options), search_task(space=space), SCHEDULE)


# --- Q-values ---------------------------------------------------------------------------------------------------------


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


# --- decisions and genotypes ------------------------------------------------------------------------------------------


@every_space
def test_every_sequence_is_a_genotype_of_the_space(space: SearchSpace) -> None:
    """Every decision makes a valid genotype; the two forms are one exactly where one table serves both."""
    sizes = decision_sizes(space)
    assert len(sizes) == {"top2": 16, "all14": 14}[space.edges] * space.cell_types
    generator = random.Random(0)
    sequences = [[0] * len(sizes), [size - 1 for size in sizes]]
    sequences += [[generator.randrange(size) for size in sizes] for _ in range(300)]
    for sequence in sequences:
        assert space.fault(decoded(space, sequence)) is None
    found = {decoded(space, sequence) for sequence in sequences[2:]}
    assert len(found) == 300
    assert all((genotype.normal == genotype.reduction) == (space.cell_types == 1) for genotype in found)


@pytest.mark.parametrize("kinds", [1, 2])
def test_top2_decisions_reach_everything(kinds: Any) -> None:
    """All decisions of a node make each pair of sources with each pair of operations, each in two orders; other
    nodes and the other form stay as they are."""
    space = SearchSpace("top2", kinds)
    sizes = decision_sizes(space)
    base = decoded(space, [0] * len(sizes))
    for form, node in itertools.product(range(kinds), (2, 3, 4, 5)):
        start = 16 * form + 4 * (node - 2)
        assert sizes[start : start + 4] == (node, 7, node - 1, 7)
        reached: Counter[Any] = Counter()
        for choice in itertools.product(*(range(size) for size in sizes[start : start + 4])):
            genotype = decoded(space, [*[0] * start, *choice, *[0] * (len(sizes) - start - 4)])
            changed, other = (genotype.normal, genotype.reduction)[:: -1 if form else 1]
            reached[tuple((edge.source, edge.operation) for edge in changed if edge.node == node)] += 1
            assert [e for e in changed if e.node != node] == [e for e in base.normal if e.node != node]
            assert other == (base.reduction if kinds == 2 else changed)
        pairs = itertools.combinations(range(node), 2)
        operations = list(itertools.product(OPERATIONS[1:], repeat=2))
        assert set(reached) == {((a, p), (b, q)) for a, b in pairs for p, q in operations}
        assert set(reached.values()) == {2}


@pytest.mark.parametrize("kinds", [1, 2])
def test_all14_decisions_reach_everything(kinds: Any) -> None:
    """Each decision is the operation of one edge, ``none`` too: a sequence for every genotype and only one."""
    space = SearchSpace("all14", kinds)
    assert decision_sizes(space) == (8,) * (14 * kinds)
    generator = random.Random(0)
    for _ in range(100):
        sequence = [generator.randrange(8) for _ in range(14 * kinds)]
        genotype = decoded(space, sequence)
        for form, chosen in ((genotype.normal, sequence[:14]), (genotype.reduction, sequence[-14:])):
            assert form == tuple((*edge, OPERATIONS[index]) for edge, index in zip(EDGES, chosen, strict=True))


def test_decoding_by_hand() -> None:
    """The second source is counted among those that are left, and edges are in the order of their sources."""
    sequence = [1, 0, 0, 6, 2, 3, 1, 0, 0, 1, 0, 2, 4, 5, 3, 4]
    found = decoded(SearchSpace(cell_types=1), sequence)
    assert [tuple(edge) for edge in found.normal] == [
        (2, 0, "dil_conv_5x5"),
        (2, 1, "max_pool_3x3"),
        (3, 1, "max_pool_3x3"),
        (3, 2, "sep_conv_3x3"),
        (4, 0, "avg_pool_3x3"),
        (4, 1, "skip_connect"),
        (5, 3, "sep_conv_5x5"),
        (5, 4, "dil_conv_3x3"),
    ]


# --- reward -----------------------------------------------------------------------------------------------------------


def macs_directly(network: nn.Module) -> int:
    """Of one image, from what convolutions and linear layers are given and give."""
    total = 0

    def add(module: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal total
        if isinstance(module, nn.Conv2d):
            kernel = module.kernel_size[0] * module.kernel_size[1]
            total += output.numel() * kernel * module.in_channels // module.groups
        elif isinstance(module, nn.Linear):
            total += module.in_features * module.out_features

    for module in network.modules():
        module.register_forward_hook(add)
    network.eval()(torch.zeros(1, 1, 8, 8))
    return total


@every_space
def test_reward_terms(space: SearchSpace) -> None:
    """Accuracy less the weighted logarithms of millions of multiply-accumulates and of edges per node."""
    task = search_task(space=space)
    genotype = space.random_genotype(random.Random(0).randrange)
    macs = macs_directly(genotype_network(task, SCHEDULE, genotype))
    assert unit_macs(task, SCHEDULE, genotype) == macs > 0
    # Two forms with six nodes each, the two inputs among them.
    carrying = sum(edge.operation != "none" for edge in genotype.normal + genotype.reduction)
    assert density(genotype) == carrying / 12
    for mu, rho in ((0.0, 0.0), (0.3, 0.0), (0.0, 0.7), (0.3, 0.7)):
        options = BlockwiseOptions(mac_weight=mu, density_weight=rho)
        expected = 0.625 - mu * math.log(macs / 1e6) - rho * math.log(carrying / 12)
        assert reward(options, task, SCHEDULE, genotype, 0.625) == pytest.approx(expected, abs=1e-12)


def test_reward_of_an_empty_genotype() -> None:
    """Without an edge that carries anything the reward is finite still."""
    space = SearchSpace("all14")
    empty = decoded(space, [0] * 28)
    options = BlockwiseOptions(mac_weight=1.0, density_weight=1.0)
    assert math.isfinite(reward(options, search_task(space=space), SCHEDULE, empty, 0.5))


def test_larger_architectures_lose_reward() -> None:
    """At equal accuracy the one that computes more is worth less, and what is remembered is the reward."""
    space = SearchSpace(cell_types=1)
    made = agent(space, mac_weight=0.5, replay=0)
    small = [0, 2, 0, 2] * 4  # skip_connect
    large = [0, 4, 0, 4] * 4  # sep_conv_5x5
    made.learn(small, 0.6)
    made.learn(large, 0.6)
    rewards = [value for _, value in made.learner.memory]
    task = search_task(space=space)
    macs = [macs_directly(genotype_network(task, SCHEDULE, decoded(space, each))) for each in (small, large)]
    assert macs[0] < macs[1]
    assert rewards == pytest.approx([0.6 - 0.5 * math.log(count / 1e6) for count in macs], abs=1e-12)
    assert made.result() == decoded(space, small)


def test_reward_draws_nothing() -> None:
    """Counting multiply-accumulates leaves the generators alone: sizes do not change what is tried next."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    unit_macs(search_task(), SCHEDULE, SearchSpace().random_genotype(random.Random(1).randrange))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before[1:]


def test_choice_by_reward_or_by_the_values() -> None:
    """The best reward of all is taken, or what the Q-values lead to, which one lucky try does not turn."""
    lucky, steady = [1, 5, 0, 3] * 8, [0, 4, 0, 6] * 8
    for choose, expected in (("best_reward", lucky), ("greedy", steady)):
        made = agent(choose=choose, replay=0)
        for decisions, accuracy, times in ((lucky, 0.9, 1), (steady, 0.85, 60)):
            for _ in range(times):
                made.learn(decisions, accuracy)
        disturb()
        assert made.result() == decoded(SearchSpace(), expected)


def test_options_reach_the_learner() -> None:
    """Rate, discount, first value, replay and epsilon are the options'."""
    options = {"q_learning_rate": 0.5, "discount": 0.25, "initial_value": 0.125, "replay": 2}
    made = agent(SearchSpace("all14", 1), **options, epsilon_first=0.8, epsilon_last=0.2, explore=0.4)
    assert made.epsilon == EpsilonSchedule(0.8, 0.2, 0.4)
    assert all((values == 0.125).all() for values in made.learner.values)
    made.learn([3] * 14, 0.75)
    expected = QLearner((8,) * 14, rate=0.5, discount=0.25, initial=0.125)
    for _ in range(3):
        expected.learn([3] * 14, 0.75)
    assert [v.tolist() for v in made.learner.values] == [v.tolist() for v in expected.values]
