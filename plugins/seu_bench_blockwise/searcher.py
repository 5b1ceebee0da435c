"""Block-wise search: decisions that make a unit, their Q-values, and an epoch on shared weights for each of them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seu_bench.training import Forward
from seu_bench_blockwise import BlockwiseOptions
from seu_bench_kit import SampledStage, SearchTask, proxy_network


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

    Of equal decisions, and of sequences of equal rewards, one is drawn from Python's global generator.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        rate: float = 0.01,
        discount: float = 1.0,
        initial: float = 0.5,
    ) -> None:
        self.sizes = tuple(sizes)
        self.rate = rate
        self.discount = discount
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
        return random.choice(places)


class BlockwiseSearch(SampledStage[tuple[int, ...], Any]):
    """The search of one task: fresh proxy network, fresh Q-values."""

    state_attributes = (*SampledStage.state_attributes, "learner")

    def __init__(self, options: BlockwiseOptions, task: SearchTask) -> None:
        schedule = options.applied_to(task.schedule)
        super().__init__(
            "search", task.task, schedule, task.images, task.seed, task.device, options.recalibration_images
        )
        self.space, self.replay = task.space, options.replay
        self.epsilon = EpsilonSchedule(options.epsilon_first, options.epsilon_last, options.explore)
        rates = {"rate": options.q_learning_rate, "discount": options.discount, "initial": options.initial_value}
        self.learner = QLearner(task.space.decisions, **rates)
        with self.randomness.active():
            self.network = proxy_network(task, schedule)
        self.prepare(self.network)

    def sample(self) -> tuple[int, ...]:
        """Decisions by the Q-values, or at random."""
        return self.learner.decide(self.epsilon.at(self.epoch / self.epochs))

    def forward_of(self, sampled: tuple[int, ...]) -> Forward:
        """The proxy network with the edges of the architecture; the others carry nothing."""
        return self.network.sample_function(self.space.sample_of(self.space.decode(sampled)))

    def learn(self, sampled: tuple[int, ...], accuracy: float, loss: float) -> None:
        """The Q-values learn from the accuracy, and from remembered ones."""
        self.learner.remember(sampled, accuracy, self.replay)

    def result(self) -> Any:
        """The architecture of the best reward."""
        return self.space.decode(self.learner.best)
