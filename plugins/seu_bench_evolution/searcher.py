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

#: Squared length of the predictor's weights beside one squared error: as if each option had been tried once more.
PENALTY = 1.0


def predict(
    sizes: Sequence[int], known: Sequence[Sequence[int]], scores: Sequence[float], asked: Sequence[Sequence[int]]
) -> NDArray[np.float64]:
    """Scores ``[len(asked)]`` by ridge regression, with an intercept, on one-hot choices.

    Args:
        sizes: number of options of each choice.
        known, scores: choices that were tried, and what was measured.
        asked: choices whose scores are predicted.
    """
    table = np.eye(sum(sizes))
    starts = np.cumsum([0, *sizes[:-1]])
    x, asked_x = (table[np.asarray(choices) + starts].sum(axis=1) for choices in (known, asked))
    mean, average = x.mean(axis=0), float(np.mean(scores))
    centred = x - mean
    weights = np.linalg.solve(centred.T @ centred + PENALTY * table, centred.T @ (np.asarray(scores) - average))
    predicted: NDArray[np.float64] = (asked_x - mean) @ weights + average
    return predicted


class EvolutionSearch(SampledStage[Any, Any]):
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

    def sample(self) -> Any:
        """A genotype at random until the population is complete, then the most promising of some mutants."""
        newest = range(len(self.tried))[-self.options.population :]
        if len(newest) < self.options.population:
            return self.space.random_genotype()
        parent = max(random.choices(newest, k=self.options.tournament), key=self.scores.__getitem__)
        mutants = [self.space.mutate(self.space.decode(self.tried[parent])) for _ in range(self.options.mutants)]
        return self._most_promising(mutants)

    def forward_of(self, sampled: Any) -> Forward:
        """The proxy network of the genotype."""
        return self.network.sample_function(self.space.sample_of(sampled))

    def set_mode(self, training: bool) -> None:
        """Switch the proxy network."""
        self.network.train(training)

    def learn(self, sampled: Any, accuracy: float, loss: float) -> None:
        """It enters the population, whose oldest member leaves."""
        self.tried.append(list(self.space.encode(sampled)))
        self.scores.append(accuracy)

    def result(self) -> Any:
        """The most promising of those tried.

        Not that of the highest score: of many noisy ones the highest is mostly luck, and rises as shared weights are
        trained. The predictor averages over all architectures that share a choice.
        """
        return self._most_promising(self._known)

    @property
    def _known(self) -> list[Any]:
        return [self.space.decode(decisions) for decisions in self.tried]

    def _most_promising(self, genotypes: Sequence[Any]) -> Any:
        known, asked = (list(map(self.space.sample_of, each)) for each in (self._known, genotypes))
        return genotypes[int(predict(self.space.choices, known, self.scores, asked).argmax())]
