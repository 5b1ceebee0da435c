"""Decisions that make a unit, their Q-values, and the agent that learns them from rewards."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from seu_bench.config import SearchSchedule
from seu_bench.models import count_macs
from seu_bench.training import on_meta
from seu_bench_blockwise import BlockwiseOptions
from seu_bench_kit import EDGES, OPERATIONS, Edge, Genotype, SearchSpace, SearchTask, genotype_network
from seu_bench_kit.search_space import INPUTS, NODES


def decision_sizes(space: SearchSpace) -> tuple[int, ...]:
    """Number of choices of each decision."""
    if space.edges == "all14":
        form = [len(OPERATIONS)] * len(EDGES)
    else:
        operations = len(OPERATIONS) - 1
        form = [size for node in range(INPUTS, INPUTS + NODES) for size in (node, operations, node - 1, operations)]
    return tuple(form * space.cell_types)


def decoded(space: SearchSpace, decisions: Sequence[int]) -> Genotype:
    """The genotype that a whole sequence of decisions makes."""
    length = len(decisions) // space.cell_types
    forms = [_form(space, decisions[start : start + length]) for start in range(0, len(decisions), length)]
    return Genotype(forms[0], forms[-1])


def _form(space: SearchSpace, decisions: Sequence[int]) -> tuple[Edge, ...]:
    if space.edges == "all14":
        return tuple(Edge(*edge, OPERATIONS[choice]) for edge, choice in zip(EDGES, decisions, strict=True))
    edges = []
    for place, node in enumerate(range(INPUTS, INPUTS + NODES)):
        first, first_operation, second, second_operation = decisions[4 * place : 4 * place + 4]
        others = [source for source in range(node) if source != first]
        pairs = [(first, first_operation), (others[second], second_operation)]
        edges += [Edge(node, source, OPERATIONS[1 + operation]) for source, operation in sorted(pairs)]
    return tuple(edges)


@dataclass(frozen=True)
class EpsilonSchedule:
    """Share of random decisions: ``first`` for the share ``explore`` of the way, then falling in nine equal steps to
    ``last`` (BlockQNN: 1 for 95 of 178 iterations, then 0.9, 0.8, ... 0.1)."""

    first: float = 1.0
    last: float = 0.1
    explore: float = 0.53

    STEPS = 9

    def at(self, progress: float) -> float:
        """Epsilon after the share ``progress`` in [0, 1) of the way."""
        if progress < self.explore or self.explore >= 1:
            return self.first
        # Rounding must not put off a step that is due now.
        step = min(int((progress - self.explore) / (1 - self.explore) * self.STEPS + 1e-9), self.STEPS - 1)
        return self.first + (self.last - self.first) * (step + 1) / self.STEPS


class QLearner:
    """Q-values of every decision, given the one before it.

    The state is the position in the sequence and the choice made just before, as BlockQNN's is the layer before. A
    reward r of a whole sequence of T decisions is given at its end, and r / T after each decision before (BlockQNN,
    equation 4).

    Args:
        sizes: number of choices of each decision.
        rate, discount, initial: of the Q-values.
        tie_break: which of equal decisions, and of sequences of equal rewards, is taken: the first, or one drawn from
            Python's global generator.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        rate: float = 0.01,
        discount: float = 1.0,
        initial: float = 0.5,
        tie_break: Literal["first", "random"] = "random",
    ) -> None:
        self.sizes = tuple(sizes)
        self.rate = rate
        self.discount = discount
        self.tie_break = tie_break
        before = (1, *self.sizes[:-1])
        #: Per position ``[choices before, choices]``.
        self.values: list[NDArray[np.float64]] = [
            np.full((rows, columns), initial) for rows, columns in zip(before, self.sizes, strict=True)
        ]
        self.memory: list[tuple[tuple[int, ...], float]] = []

    def decide(self, epsilon: float) -> tuple[int, ...]:
        """A sequence: each decision at random with probability ``epsilon``, else the best known. Draws from Python's
        global generator."""
        decisions: list[int] = []
        before = 0
        for values in self.values:
            is_random = random.random() < epsilon
            choice = random.randrange(values.shape[1]) if is_random else self._best_of(values[before].tolist())
            decisions.append(choice)
            before = choice
        return tuple(decisions)

    def remember(self, decisions: Sequence[int], reward: float, replay: int = 0) -> None:
        """Learn a sequence and its reward, then ``replay`` remembered ones drawn at random."""
        self.memory.append((tuple(decisions), reward))
        self.learn(decisions, reward)
        for _ in range(replay):
            self.learn(*self.memory[random.randrange(len(self.memory))])

    def learn(self, decisions: Sequence[int], reward: float) -> None:
        """One update of each decision, from the last to the first:
        ``Q(s, a) <- (1 - rate) Q(s, a) + rate (r + discount max Q(s', .))`` (BlockQNN, equation 3)."""
        following = 0.0
        last = len(decisions) - 1
        for position in range(last, -1, -1):
            before = decisions[position - 1] if position else 0
            choice = decisions[position]
            gained = reward if position == last else reward / len(decisions)
            values = self.values[position]
            target = gained + self.discount * following
            values[before, choice] += self.rate * (target - values[before, choice])
            following = float(values[before].max())

    @property
    def best(self) -> tuple[int, ...]:
        """The remembered sequence of the highest reward."""
        return self.memory[self._best_of([reward for _, reward in self.memory])][0]

    def state_dict(self) -> dict[str, Any]:
        """Plain values only."""
        return {
            "values": [values.tolist() for values in self.values],
            "memory": [[list(decisions), reward] for decisions, reward in self.memory],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.values = [np.array(values) for values in state["values"]]
        self.memory = [(tuple(decisions), reward) for decisions, reward in state["memory"]]

    def _best_of(self, values: Sequence[float]) -> int:
        largest = max(values)
        places = [place for place, value in enumerate(values) if value == largest]
        return places[0] if self.tie_break == "first" else random.choice(places)


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
