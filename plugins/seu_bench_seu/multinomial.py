"""What the MDL searcher and the MDL creator share: sample, train an epoch, measure, let the probabilities learn."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import nn

from seu_bench.loading import TaskImages
from seu_bench.loops import Forward, evaluate, train_epoch
from seu_bench.spec import Schedule
from seu_bench.stages import EpochReport, Stage, cosine_rate, make_sgd, set_rate
from seu_bench_seu.mdl import MultinomialTables
from seu_bench_seu.options import MdlOptions

Result = TypeVar("Result")


class MultinomialStage(Stage[Result]):
    """A stage of multinomial distribution learning (paper, algorithms 2 and 4).

    Weights train on the first half of the training images, accuracies come from the second. A subclass calls
    :meth:`prepare` when it has made what trains.

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
        super().__init__(name, task, schedule.epochs, seed, device)
        self.options = options
        self.schedule = schedule
        self.train_images, self.score_images = images.halves()

    def prepare(
        self, trained: nn.Module, candidates: Sequence[int], first_epochs: Sequence[Sequence[int]] | None = None
    ) -> None:
        """Make optimiser and tables.

        Args:
            trained: what the stage trains.
            candidates: number of candidates of each place.
            first_epochs: epoch records to start from; zeros by default.
        """
        self.trained = trained
        self.parameters = list(trained.parameters())
        self.optimizer = make_sgd(self.parameters, self.schedule)
        self.tables = MultinomialTables(
            candidates,
            alpha=self.options.alpha,
            scope=self.options.update,
            normalisation=self.options.normalisation,
            first_epochs=first_epochs,
        )

    @abstractmethod
    def forward_of(self, sampled: Sequence[int]) -> Forward:
        """The network that a sample stands for, one candidate per place."""

    @abstractmethod
    def set_mode(self, training: bool) -> None:
        """Switch everything that is computed to training or to evaluation mode."""

    def scored(self, loss: float) -> None:
        """Told of the mean loss on the second half after each epoch."""

    def run_epoch(self) -> EpochReport:
        """Sample, train one epoch, measure, learn."""
        sampled = self.tables.sample()
        forward = self.forward_of(sampled)
        set_rate(self.optimizer, cosine_rate(self.schedule, self.epoch))
        self.set_mode(training=True)
        loss = train_epoch(
            forward,
            self.parameters,
            self.optimizer,
            self.train_images,
            self.schedule,
            self.passed,
            self.options.unsampled,
        )
        self.set_mode(training=False)
        accuracy, score_loss = evaluate(forward, self.score_images, self.schedule.batch_size, self.passed)
        self.tables.learn(sampled, accuracy)
        self.scored(score_loss)
        return EpochReport(loss, accuracy)

    def tie_order(self, count: int) -> list[int]:
        """The order in which ``count`` equal candidates are preferred."""
        return torch.randperm(count).tolist() if self.options.tie_break == "random" else list(range(count))

    def own_state(self) -> dict[str, Any]:
        """Weights, optimiser and tables."""
        return {
            "weights": self.trained.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "tables": self.tables.state_dict(),
        }

    def load_own_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`own_state` gave."""
        self.trained.load_state_dict(state["weights"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.tables.load_state_dict(state["tables"])
