"""Q-learning as both budgets use it: decide, learn from an architecture's reward, choose in the end."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import torch

from seu_bench.config import SearchSchedule
from seu_bench.models import count_macs
from seu_bench.training import on_meta
from seu_bench_blockwise import BlockwiseOptions
from seu_bench_blockwise.decisions import decision_sizes, decoded
from seu_bench_blockwise.qlearning import EpsilonSchedule, QLearner
from seu_bench_kit import OPERATIONS, Genotype, SearchTask, genotype_network
from seu_bench_kit.search_space import INPUTS, NODES


class Agent:
    """The learner of one search."""

    def __init__(self, options: BlockwiseOptions, task: SearchTask, schedule: SearchSchedule) -> None:
        self.options = options
        self.task = task
        self.schedule = schedule
        self.epsilon = EpsilonSchedule(options.epsilon_first, options.epsilon_last, options.explore)
        self.learner = QLearner(
            decision_sizes(task.space),
            rate=options.q_learning_rate,
            discount=options.discount,
            initial=options.initial_value,
            tie_break=options.tie_break,
        )

    def decide(self, progress: float) -> tuple[int, ...]:
        """An architecture to try after the share ``progress`` of the search."""
        return self.learner.decide(self.epsilon.at(progress))

    def genotype(self, decisions: Sequence[int]) -> Genotype:
        """Decode decisions."""
        return decoded(self.task.space, decisions)

    def learn(self, decisions: Sequence[int], accuracy: float) -> None:
        """Learn from the accuracy that an architecture reached, and from remembered ones."""
        value = reward(self.options, self.task, self.schedule, self.genotype(decisions), accuracy)
        self.learner.remember(decisions, value, self.options.replay)

    def result(self) -> Genotype:
        """The architecture of the best reward, or the one that the Q-values lead to."""
        greedy = self.options.choose == "greedy"
        return self.genotype(self.learner.decide(0.0) if greedy else self.learner.best)


def reward(
    options: BlockwiseOptions, task: SearchTask, schedule: SearchSchedule, genotype: Genotype, accuracy: float
) -> float:
    """Accuracy, less what size costs: ``accuracy - mu log(MACs / 1e6) - rho log(density)`` (BlockQNN, equation 5, with
    multiply-accumulates in place of operations; both terms are off by default)."""
    value = accuracy
    if options.mac_weight:
        value -= options.mac_weight * math.log(unit_macs(task, schedule, genotype) / 1e6)
    if options.density_weight:
        value -= options.density_weight * math.log(density(genotype))
    return value


def density(genotype: Genotype) -> float:
    """Edges that carry something per node, inputs included, over both forms."""
    carrying = [edge for edge in (*genotype.normal, *genotype.reduction) if edge.operation != OPERATIONS[0]]
    return max(len(carrying), 1) / (2 * (INPUTS + NODES))


def unit_macs(task: SearchTask, schedule: SearchSchedule, genotype: Genotype) -> int:
    """Multiply-accumulates per image of the genotype's network at the proxy's size."""
    meta = dataclasses.replace(task, device=torch.device("meta"))
    network = on_meta(lambda: genotype_network(meta, schedule, genotype)).eval()
    shape = (task.images.channels, *task.images.store.shape[2:])
    return count_macs(network, (shape[0], shape[1], shape[2]), torch.device("meta"))
