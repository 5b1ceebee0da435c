"""Evolution: a tournament, mutants of its winner, the most promising one trained an epoch on shared weights."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seu_bench.training import Forward
from seu_bench_evolution import EvolutionOptions
from seu_bench_kit import SampledStage, SearchTask, proxy_network

#: Squared length of the predictor's weights beside one squared error.
PENALTY = 1.0


def predict(
    sizes: Sequence[int], tried: Sequence[Sequence[int]], scores: Sequence[float], asked: Sequence[Sequence[int]]
) -> NDArray[np.float64]:
    """Scores ``[len(asked)]`` by ridge regression, with an intercept, on one-hot decisions.

    Args:
        sizes: number of options of each decision.
        tried, scores: decisions that were tried, and what was measured.
        asked: decisions whose scores are predicted.
    """
    units = np.eye(sum(sizes))
    starts = np.cumsum([0, *sizes[:-1]])
    x, asked_x = (units[np.asarray(decisions) + starts].sum(axis=1) for decisions in (tried, asked))
    centre, average = x.mean(axis=0), float(np.mean(scores))
    x = x - centre
    weights = np.linalg.solve(x.T @ x + PENALTY * units, x.T @ (np.asarray(scores) - average))
    return np.asarray((asked_x - centre) @ weights + average)


class EvolutionSearch(SampledStage[list[int], Any]):
    """The search of one task: fresh proxy network, fresh population, which is the newest of those tried."""

    state_attributes = (*SampledStage.state_attributes, "tried", "scores")

    def __init__(self, options: EvolutionOptions, task: SearchTask) -> None:
        schedule = options.applied_to(task.schedule)
        super().__init__(
            "search", task.task, schedule, task.images, task.seed, task.device, options.recalibration_images
        )
        self.options, self.space = options, task.space
        #: Decisions of each epoch's architecture, and its accuracy.
        self.tried: list[list[int]] = []
        self.scores: list[float] = []
        with self.randomness.active():
            self.network = proxy_network(task, schedule)
        self.prepare(self.network)

    def sample(self) -> list[int]:
        """Decisions at random until the population is complete, then the most promising of some mutants."""
        newest = range(len(self.tried))[-self.options.population :]
        if len(newest) < self.options.population:
            return list(self.space.encode(self.space.random_genotype()))
        drawn = random.choices(newest, k=self.options.tournament)
        parent = self.space.decode(self.tried[max(drawn, key=self.scores.__getitem__)])
        return self._most_promising(
            [list(self.space.encode(self.space.mutate(parent))) for _ in range(self.options.mutants)]
        )

    def forward_of(self, sampled: list[int]) -> Forward:
        """The proxy network of the decisions."""
        return self.network.sample_function(self.space.sample_of(self.space.decode(sampled)))

    def learn(self, sampled: list[int], accuracy: float, loss: float) -> None:
        """It enters the population, whose oldest member leaves."""
        self.tried.append(sampled)
        self.scores.append(accuracy)

    def result(self) -> Any:
        """The most promising of those tried, not that of the highest score: of many noisy scores the highest is luck
        for the most part, and the predictor averages over all architectures that share a decision."""
        return self.space.decode(self._most_promising(self.tried))

    def _most_promising(self, asked: list[list[int]]) -> list[int]:
        return asked[int(predict(self.space.decisions, self.tried, self.scores, asked).argmax())]
