"""Multinomial distribution learning, shared by the MDL searcher and creator: samples update the probabilities."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from seu_bench.config import Schedule
from seu_bench.data import TaskImages
from seu_bench.training.stage import Result
from seu_bench_kit import SampledStage
from seu_bench_seu.mdl import MultinomialTables
from seu_bench_seu.options import MdlOptions


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
