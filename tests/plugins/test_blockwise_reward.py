"""The reward of a genotype by hand, and what is chosen by it."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch
from support.plugins.blockwise import SCHEDULE, every_space, search_task
from support.tiny import all_threads, disturb, one_thread
from torch import Tensor, nn

from seu_bench_blockwise import BlockwiseOptions
from seu_bench_blockwise.agent import Agent, density, reward, unit_macs
from seu_bench_blockwise.decisions import decoded
from seu_bench_kit.sampling import genotype_network
from seu_bench_kit.search_space import SearchSpace

setup_module, teardown_module = one_thread, all_threads


def agent(space: SearchSpace | None = None, **options: Any) -> Agent:
    return Agent(BlockwiseOptions(**options), search_task(space=space), SCHEDULE)


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
