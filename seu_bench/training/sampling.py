"""Stages that learn from samples: choose a network, train it on one half of the images, score it on the other.

The paper's searcher and creator work so (algorithms 2 and 4), and so may others: what they sample and how they learn
from its score is all that differs.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from seu_bench.config.protocol import Schedule, SearchSchedule
from seu_bench.data.images import TaskImages
from seu_bench.models.cells import GenotypeNetwork, ProxyNetwork
from seu_bench.search_space import Genotype
from seu_bench.training.components import SearchTask
from seu_bench.training.loops import Forward, Unsampled, evaluate, train_epoch
from seu_bench.training.optim import cosine_rate, make_sgd, set_rate
from seu_bench.training.stage import EpochReport, Result, Stage

Sampled = TypeVar("Sampled")


def proxy_network(task: SearchTask, schedule: SearchSchedule) -> ProxyNetwork:
    """A fresh proxy network for a task, its weights drawn now."""
    made = ProxyNetwork(task.images.channels, task.num_classes, schedule.cells, schedule.channels, task.space)
    return made.to(task.device)


def genotype_network(task: SearchTask, schedule: SearchSchedule, genotype: Genotype) -> GenotypeNetwork:
    """A fresh network of one genotype at the proxy's size, its weights drawn now."""
    size = (schedule.cells, schedule.channels)
    return GenotypeNetwork(genotype, task.images.channels, task.num_classes, *size, task.space).to(task.device)


class SampledStage(Stage[Result], Generic[Sampled, Result]):
    """Each epoch samples a network, trains it on the first half of the training images, measures it on the second half
    and learns from that.

    A subclass calls :meth:`prepare` when it has made what trains.

    Args:
        schedule: of the stage, options applied.
        images: the task's training images.
    """

    #: What happens to parameters that an epoch's sample does not use.
    unsampled: Unsampled = "still"

    def __init__(
        self, name: str, task: int, schedule: Schedule, images: TaskImages, seed: int, device: torch.device
    ) -> None:
        super().__init__(name, task, schedule.epochs, seed, device)
        self.schedule = schedule
        self.train_images, self.score_images = images.halves()

    def prepare(self, trained: nn.Module) -> None:
        """Make the optimiser of ``trained``."""
        self.trained = trained
        self.parameters = list(trained.parameters())
        self.optimizer = make_sgd(self.parameters, self.schedule)

    @abstractmethod
    def sample(self) -> Sampled:
        """Sample that the coming epoch tries."""

    @abstractmethod
    def forward_of(self, sampled: Sampled) -> Forward:
        """The network that a sample stands for."""

    @abstractmethod
    def set_mode(self, training: bool) -> None:
        """Switch everything that is computed to training or to evaluation mode."""

    @abstractmethod
    def learn(self, sampled: Sampled, accuracy: float, loss: float) -> None:
        """Update from the accuracy in [0, 1] and the mean loss on the second half."""

    def run_epoch(self) -> EpochReport:
        """Sample, train one epoch, measure, learn."""
        sampled = self.sample()
        forward = self.forward_of(sampled)
        set_rate(self.optimizer, cosine_rate(self.schedule, self.epoch))
        self.set_mode(training=True)
        loss = train_epoch(
            forward, self.parameters, self.optimizer, self.train_images, self.schedule, self.passed, self.unsampled
        )
        self.set_mode(training=False)
        accuracy, score_loss = evaluate(forward, self.score_images, self.schedule.batch_size, self.passed)
        if not math.isfinite(score_loss):
            return EpochReport(score_loss, accuracy)  # it diverged, and the stage ends here
        self.learn(sampled, accuracy, score_loss)
        return EpochReport(loss, accuracy)

    def get_extra_state(self) -> dict[str, Any]:
        """Weights and optimiser."""
        return {"weights": self.trained.state_dict(), "optimizer": self.optimizer.state_dict()}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned."""
        self.trained.load_state_dict(state["weights"])
        self.optimizer.load_state_dict(state["optimizer"])
