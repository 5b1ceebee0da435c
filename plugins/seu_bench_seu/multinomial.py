"""Multinomial distribution learning, shared by the MDL searcher and creator: samples update the probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
        """Make optimiser and tables.

        Args:
            trained: what the stage trains.
            candidates: number of candidates of each place.
            first_epochs: epoch records to start from; zeros by default.
        """
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

    def get_extra_state(self) -> dict[str, Any]:
        """Weights, optimiser and tables."""
        return {**super().get_extra_state(), "tables": self.tables.state_dict()}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned."""
        super().set_extra_state(state)
        self.tables.load_state_dict(state["tables"])
