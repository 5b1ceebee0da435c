"""The searches of both budgets: images passed, states and results."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from typing import Any

import pytest
import torch
from support.components import SCHEDULE, every_space, search_task
from torch import Tensor, nn

from seu_bench_blockwise import BlockwiseOptions, build_search
from seu_bench_blockwise.learning import (
    EpsilonSchedule,
    QLearner,
    decision_sizes,
    decoded,
    density,
    reward,
    unit_macs,
)
from seu_bench_blockwise.searcher import ScratchSearch, SharedSearch
from seu_bench_kit.sampling import genotype_network
from seu_bench_kit.search_space import EDGES, OPERATIONS, SearchSpace

pytestmark = pytest.mark.long


def shared(seed: int = 3, space: SearchSpace | None = None, **options: Any) -> SharedSearch:
    stage = build_search(BlockwiseOptions(**options), search_task(seed, space))
    assert isinstance(stage, SharedSearch)
    return stage


def scratch(seed: int = 3, space: SearchSpace | None = None, **options: Any) -> ScratchSearch:
    given = {"budget": "scratch", "samples": 3, "scratch_epochs": 2, **options}
    stage = build_search(BlockwiseOptions(**given), search_task(seed, space))
    assert isinstance(stage, ScratchSearch)
    return stage


def test_shared_trains_what_was_decided() -> None:
    """An epoch trains the operations of its architecture alone, on one network; its accuracy is remembered."""
    stage = shared(weight_decay=0.0)
    network = stage.network
    for epoch in range(2):
        before = {name: parameter.detach().clone() for name, parameter in network.named_parameters()}
        stage.advance()
        decisions, value = stage.agent.learner.memory[epoch]
        assert len(stage.agent.learner.memory) == epoch + 1 and value == stage.report.accuracy
        found = stage.agent.genotype(decisions)
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


def test_scratch_trains_a_fresh_network_for_each() -> None:
    """Each architecture begins with weights and an Adam of its own and trains so many epochs; after the last it is
    measured. The rate is a fifth after five epochs, and starts again."""
    stage = scratch(samples=2, scratch_epochs=7)
    assert stage.epochs == 14
    networks: list[nn.Module] = []
    rates, reports = [], []
    for epoch in range(14):
        stage.advance()
        if epoch % 7 == 0:
            networks.append(stage.network)
        assert stage.network is networks[-1]
        optimizer = stage.optimizer
        assert isinstance(optimizer, torch.optim.Adam)
        rates.append(optimizer.param_groups[0]["lr"])
        reports.append(stage.report)
        # One batch of eight images per epoch, counted anew for each architecture.
        assert {int(state["step"]) for state in optimizer.state.values()} == {epoch % 7 + 1}
        assert len(stage.agent.learner.memory) == (epoch + 1) // 7
    assert networks[0] is not networks[1]
    assert rates == pytest.approx([1e-3] * 5 + [2e-4] * 2 + [1e-3] * 5 + [2e-4] * 2, rel=1e-12)
    assert [report.accuracy is not None for report in reports] == [epoch % 7 == 6 for epoch in range(14)]
    assert [value for _, value in stage.agent.learner.memory] == [reports[6].accuracy, reports[13].accuracy]
    assert all(report.loss is not None for report in reports)
    images, labels = stage.score_images.gather(torch.arange(9))
    with torch.no_grad():
        right = stage.network.eval()(images).argmax(dim=1) == labels
    assert reports[13].accuracy == float(right.double().mean())


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
