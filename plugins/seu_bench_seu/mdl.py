"""Multinomial distribution learning: the rule, and the searcher and the creator that sample and learn by it.

Each place (an edge, or a layer) has a probability P, an accuracy record A and an epoch record E per candidate. An
epoch samples one candidate per place; its A becomes the accuracy measured, its E grows by one. A candidate is rewarded
for each other that it beats with fewer epochs, and penalised for each that beats it with fewer (paper, equations 5-10
and 15-20; Zheng et al., ICCV 2019).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from seu_bench.config import Schedule
from seu_bench.data import TaskImages
from seu_bench.training import BestWeights, Forward
from seu_bench.training.stage import Result
from seu_bench_kit import Adapted, CreationTask, SampledStage, SearchTask, proxy_network
from seu_bench_kit.search_space import Vector
from seu_bench_seu.options import CreationOptions, MdlOptions, SearchOptions

Scope = Literal["sampled", "all"]
Normalisation = Literal["sum", "softmax"]

#: Smallest probability before dividing by the sum: penalties can take a probability below zero.
FLOOR = 1e-8


def reward_minus_penalty(accuracy: Vector, epochs: Vector) -> Vector:
    """For each candidate l: ``#{k: E_l < E_k and A_l > A_k} - #{k: E_l > E_k and A_l < A_k}`` (equations 6, 7)."""
    fewer = epochs[:, None] < epochs[None, :]
    better = accuracy[:, None] > accuracy[None, :]
    rewards: Vector = (fewer & better).sum(axis=1).astype(np.float64)
    penalties: Vector = (fewer & better).sum(axis=0).astype(np.float64)
    return rewards - penalties


def update_probabilities(
    probabilities: Vector,
    accuracy: Vector,
    epochs: Vector,
    sampled: int,
    *,
    alpha: float = 0.01,
    scope: Scope = "sampled",
    normalisation: Normalisation = "sum",
) -> Vector:
    """The probabilities after an epoch whose A and E are recorded already.

    Args:
        probabilities, accuracy, epochs: ``[K]`` of one place.
        sampled: the candidate that the epoch trained.
        scope: which candidates the rule moves: the sampled one (the printed equation 8) or all (the published code).
        normalisation: ``sum`` divides by the sum (the printed equation 9), ``softmax`` is what its text and code say.
    """
    step = alpha * reward_minus_penalty(accuracy, epochs)
    if scope == "sampled":
        step = np.where(np.arange(len(step)) == sampled, step, 0.0)
    moved = probabilities + step
    if normalisation == "softmax":
        exponentials = np.exp(moved - moved.max())
        return np.asarray(exponentials / exponentials.sum())
    moved = np.maximum(moved, FLOOR)
    return np.asarray(moved / moved.sum())


class MultinomialTables:
    """P, A and E of all places of one search.

    Args:
        candidates: number of candidates of each place.
        first_epochs: epoch records to start from, per place; zeros by default.
    """

    def __init__(
        self,
        candidates: Sequence[int],
        *,
        alpha: float,
        scope: Scope,
        normalisation: Normalisation,
        first_epochs: Sequence[Sequence[int]] | None = None,
    ) -> None:
        self.alpha = alpha
        self.scope: Scope = scope
        self.normalisation: Normalisation = normalisation
        self.probabilities: list[Vector] = [np.full(count, 1 / count) for count in candidates]
        self.accuracy: list[Vector] = [np.zeros(count) for count in candidates]
        starts = [[0] * count for count in candidates] if first_epochs is None else first_epochs
        self.epochs: list[Vector] = [np.asarray(start, dtype=np.float64) for start in starts]

    def sample(self) -> list[int]:
        """One candidate per place, by torch's global generator."""
        return [int(torch.multinomial(torch.from_numpy(p), 1)) for p in self.probabilities]

    def learn(self, sampled: Sequence[int], accuracy: float) -> None:
        """Record an epoch and move the probabilities."""
        for place, candidate in enumerate(sampled):
            self.accuracy[place][candidate] = accuracy
            self.epochs[place][candidate] += 1
            self.probabilities[place] = update_probabilities(
                self.probabilities[place],
                self.accuracy[place],
                self.epochs[place],
                candidate,
                alpha=self.alpha,
                scope=self.scope,
                normalisation=self.normalisation,
            )

    def state_dict(self) -> dict[str, Any]:
        """Tensors only."""
        return {
            name: [torch.from_numpy(vector.copy()) for vector in getattr(self, name)]
            for name in ("probabilities", "accuracy", "epochs")
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        for name in ("probabilities", "accuracy", "epochs"):
            setattr(self, name, [tensor.numpy().copy() for tensor in state[name]])


class MultinomialStage(SampledStage[list[int], Result]):
    """A stage of multinomial distribution learning (paper, algorithms 2 and 4): one candidate per place.

    Args:
        options: the rule's.
        schedule: of the stage, options applied.
        images: the task's training images.
    """

    state_attributes: tuple[str, ...] = (*SampledStage.state_attributes, "tables")

    def __init__(
        self,
        name: str,
        task: int,
        options: MdlOptions,
        schedule: Schedule,
        images: TaskImages,
        seed: int,
        device: torch.device,
    ) -> None:
        super().__init__(name, task, schedule, images, seed, device, options.recalibration_images)
        self.options = options
        self.unsampled = options.unsampled

    def start(
        self, trained: nn.Module, candidates: Sequence[int], first_epochs: Sequence[Sequence[int]] | None = None
    ) -> None:
        """Make optimiser and tables."""
        self.prepare(trained)
        self.tables = MultinomialTables(
            candidates,
            alpha=self.options.alpha,
            scope=self.options.update,
            normalisation=self.options.normalisation,
            first_epochs=first_epochs,
        )

    def sample(self) -> list[int]:
        """One candidate per place."""
        return self.tables.sample()

    def learn(self, sampled: list[int], accuracy: float, loss: float) -> None:
        """The rule."""
        self.tables.learn(sampled, accuracy)

    def tie_order(self, count: int) -> list[int]:
        """The order in which ``count`` equal candidates are preferred."""
        return torch.randperm(count).tolist() if self.options.tie_break == "random" else list(range(count))


class MdlSearch(MultinomialStage[Any]):
    """The search of one task: fresh proxy network, fresh tables."""

    def __init__(self, options: SearchOptions, task: SearchTask) -> None:
        schedule = options.applied_to(task.schedule)
        super().__init__("search", task.task, options, schedule, task.images, task.seed, task.device)
        self.space = task.space
        with self.randomness.active():
            self.network = proxy_network(task, schedule)
        self.start(self.network, task.space.choices)

    def forward_of(self, sampled: Sequence[int]) -> Forward:
        """The proxy network with the sampled operations."""
        return self.network.sample_function(sampled)

    def result(self) -> Any:
        """The genotype of the last probabilities."""
        return self.space.derive(self.tables.probabilities, self.tie_order)


class MdlCreation(MultinomialStage[tuple[int | Adapted, ...]]):
    """The creation of one task's path: only new units, adapters and the task's head train; the weights to keep are
    those of the lowest loss on the second half, over all paths sampled."""

    state_attributes = (*MultinomialStage.state_attributes, "best")

    def __init__(self, options: CreationOptions, task: CreationTask) -> None:
        schedule = options.applied_to(task.schedule)
        super().__init__("creation", task.task, options, schedule, task.images, task.seed, task.device)
        self.model = task.model
        #: Of each layer what it can choose, the new unit last.
        self.units = [self.candidates(layer) for layer in range(len(self.model.candidates))]
        adapters = (it.module for units in self.units for it in units if isinstance(it, Adapted))
        self.start(
            nn.ModuleList([*self.model.new_units(task.task), *adapters]),
            [len(units) for units in self.units],
            first_epochs=[
                [schedule.old_unit_epochs] * (len(units) - is_new) + [0] * is_new
                for units, is_new in zip(self.units, self.model.has_new, strict=True)
            ],
        )
        self.best = BestWeights(self.trained)
        self.restore = options.restore

    def candidates(self, layer: int) -> list[int | Adapted]:
        """What a layer can choose: every unit as it is."""
        return list(range(self.model.candidates[layer]))

    def forward_of(self, sampled: Sequence[int]) -> Forward:
        """The super model on the sampled path."""
        self.model.set_path(self.task, [units[at] for units, at in zip(self.units, sampled, strict=True)])

        def forward(images: torch.Tensor) -> torch.Tensor:
            return self.model.forward_single_task(images, self.task)

        return forward

    def learn(self, sampled: list[int], accuracy: float, loss: float) -> None:
        """The rule; and the best weights are kept."""
        super().learn(sampled, accuracy, loss)
        if self.restore == "best_valid":
            self.best.offer(loss)

    def result(self) -> tuple[int | Adapted, ...]:
        """The most probable unit of each layer, with the best weights; of equal ones a random one, or the oldest."""
        self.best.restore()
        path = []
        for units, probabilities in zip(self.units, self.tables.probabilities, strict=True):
            order = self.tie_order(len(probabilities))
            path.append(units[order[int(probabilities[order].argmax())]])
        return tuple(path)
