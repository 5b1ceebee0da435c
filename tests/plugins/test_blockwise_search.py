"""The block-wise search: decisions, Q-values and results."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import Any

import pytest
import torch
from support.components import search_task
from support.tiny import all_threads, one_thread

from seu_bench_blockwise import BlockwiseOptions
from seu_bench_blockwise.searcher import BlockwiseSearch, EpsilonSchedule, QLearner
from seu_bench_kit.cells import CellSpace
from seu_bench_kit.genotypes import EDGES, OPERATIONS

pytestmark = pytest.mark.long

setup_module, teardown_module = one_thread, all_threads


def shared(seed: int = 3, space: CellSpace | None = None, **options: Any) -> BlockwiseSearch:
    return BlockwiseSearch(BlockwiseOptions(**options), search_task(seed, space))


# --- the budget of shared weights -------------------------------------------------------------------------------------


def test_shared_trains_what_was_decided() -> None:
    """An epoch trains the operations of its architecture alone, on one network; its accuracy is remembered."""
    stage = shared(weight_decay=0.0)
    network = stage.network
    for epoch in range(2):
        before = {name: parameter.detach().clone() for name, parameter in network.named_parameters()}
        stage.advance()
        decisions, value = stage.learner.memory[epoch]
        assert len(stage.learner.memory) == epoch + 1 and value == stage.report.accuracy
        found = stage.space.decode(decisions)
        moved = {n for n, parameter in network.named_parameters() if not torch.equal(parameter, before[n])}
        assert any(".edges." in name for name in moved)
        for name in moved:
            if ".edges." in name:
                _, cell, _, row, index, *_ = name.split(".")
                form = found.reduction if network.cells[int(cell)].plan.reduction else found.normal
                assert (*EDGES[int(row)], OPERATIONS[int(index)]) in {tuple(edge) for edge in form}
        # The accuracy is that of the same architecture on the second half.
        network.eval()
        images, labels = stage.score_images.gather(torch.arange(9))
        with torch.no_grad():
            right = stage.forward_of(decisions)(images).argmax(dim=1) == labels
        assert value == float(right.double().mean())
    assert stage.network is network


@pytest.mark.parametrize("kinds", [1, 2])
def test_top2_decisions_reach_everything(kinds: Any) -> None:
    """All decisions of a node make each pair of sources with each pair of operations, each in two orders; other
    nodes and the other form stay as they are."""
    space = CellSpace("top2", kinds)
    sizes = space.decisions
    base = space.decode([0] * len(sizes))
    for form, node in itertools.product(range(kinds), (2, 3, 4, 5)):
        start = 16 * form + 4 * (node - 2)
        assert sizes[start : start + 4] == (node, 7, node - 1, 7)
        reached: Counter[Any] = Counter()
        for choice in itertools.product(*(range(size) for size in sizes[start : start + 4])):
            genotype = space.decode([*[0] * start, *choice, *[0] * (len(sizes) - start - 4)])
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
    space = CellSpace("all14", kinds)
    assert space.decisions == (8,) * (14 * kinds)
    generator = random.Random(0)
    for _ in range(100):
        sequence = [generator.randrange(8) for _ in range(14 * kinds)]
        genotype = space.decode(sequence)
        for form, chosen in ((genotype.normal, sequence[:14]), (genotype.reduction, sequence[-14:])):
            assert form == tuple((*edge, OPERATIONS[index]) for edge, index in zip(EDGES, chosen, strict=True))


#: Rewards of two decisions of two and three choices. The best of all, (0, 2), stands beside bad ones; the first
#: decision 1 is better on average.
REWARDS = {(0, 0): 0.1, (0, 1): 0.0, (0, 2): 0.9, (1, 0): 0.6, (1, 1): 0.7, (1, 2): 0.6}


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


def test_best_reward_is_chosen() -> None:
    """One lucky try, whatever the Q-values lead to."""
    stage, lucky = shared(replay=0), (1, 5, 0, 3) * 8
    stage.learn(lucky, 0.9, 0.0)
    for _ in range(60):
        stage.learn((0, 4, 0, 6) * 8, 0.85, 0.0)
    assert stage.result() == CellSpace().decode(lucky)


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


def test_decoding_by_hand() -> None:
    """The second source is counted among those that are left, and edges are in the order of their sources."""
    sequence = [1, 0, 0, 6, 2, 3, 1, 0, 0, 1, 0, 2, 4, 5, 3, 4]
    found = CellSpace(cell_types=1).decode(sequence)
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
