"""The stage that trains a task's path, with Avalanche's callbacks around every batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from seu_bench.config.protocol import Schedule
from seu_bench.training.optim import BestWeights, cosine_rate, set_rate
from seu_bench.training.stage import EpochReport, Stage
from seu_bench.training.task import TaskData


class EpochMeter:
    """Mean loss and accuracy over an epoch, accumulated on the device: one synchronisation per epoch.

    Args:
        device: of the losses.
    """

    def __init__(self, device: torch.device) -> None:
        self._loss = torch.zeros((), device=device)
        self._correct = torch.zeros((), device=device, dtype=torch.int64)
        self._images = 0

    def add(self, loss: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Count a batch with its mean ``loss``."""
        count = len(labels)
        self._loss += loss.detach().squeeze() * count
        self._correct += (logits.detach().argmax(dim=1) == labels).sum()
        self._images += count

    @property
    def report(self) -> EpochReport:
        """Mean loss per image and accuracy."""
        if not self._images:
            return EpochReport()
        return EpochReport(float(self._loss) / self._images, int(self._correct) / self._images)


class TrainingLearner(Protocol):
    """Methods of a strategy that :class:`TrainingStage` calls: an epoch with its callbacks, a validation."""

    device: Any
    schedule: Schedule
    lr_schedule: Literal["cosine", "constant"]
    restore: Literal["best_valid", "last"]
    optimizer: Any
    epoch_meter: EpochMeter | None

    def seed_for(self, purpose: str, task: int) -> int:
        """Seed of one purpose in one task."""

    def trained_module(self, task: TaskData) -> nn.Module:
        """Module that the stage trains."""

    def begin_training(self, module: nn.Module) -> None:
        """Make a fresh optimiser over what trains in ``module``."""

    def training_mode(self) -> None:
        """Make the model ready for an epoch of training."""

    def train_one_epoch(self) -> None:
        """Train one epoch, with Avalanche's callbacks."""

    def validation_loss(self, task: TaskData, on_batch: Callable[[int], None]) -> float | None:
        """Mean loss per validation image; ``None`` without validation images."""


class TrainingStage(Stage[None]):
    """Train a task's path; after each epoch validate, at the end restore the best weights (published code).

    Args:
        strategy: that learns.
        task: to learn.
    """

    #: Whether each image of a batch is one image pass; a subclass that says no counts passes itself.
    counts_batches = True

    compiles_units = True

    def __init__(self, strategy: TrainingLearner, task: TaskData) -> None:
        super().__init__(
            "training",
            task.index,
            strategy.schedule.epochs,
            strategy.seed_for("training", task.index),
            strategy.device,
        )
        self.strategy = strategy
        self.data = task
        self.module = strategy.trained_module(task)
        self.best = BestWeights(self.module)
        strategy.begin_training(self.module)

    def run_epoch(self) -> EpochReport:
        """One epoch of training and one pass over the validation images."""
        strategy = self.strategy
        if strategy.lr_schedule == "cosine":
            set_rate(strategy.optimizer, cosine_rate(strategy.schedule, self.epoch))
        strategy.training_mode()
        meter = _CountingMeter(self, strategy.device) if self.counts_batches else EpochMeter(strategy.device)
        strategy.epoch_meter = meter
        try:
            strategy.train_one_epoch()
        finally:
            strategy.epoch_meter = None
        report = meter.report
        if strategy.restore == "best_valid":
            loss = strategy.validation_loss(self.data, self.passed)
            if loss is not None:
                self.best.offer(loss)
        return report

    def result(self) -> None:
        """Restore the best weights."""
        self.best.restore()

    def get_extra_state(self) -> dict[str, Any]:
        """Weights, optimiser and best weights."""
        return {
            "weights": self.module.state_dict(),
            "optimizer": self.strategy.optimizer.state_dict(),
            "best": self.best.state_dict(),
        }

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned."""
        self.module.load_state_dict(state["weights"])
        self.strategy.optimizer.load_state_dict(state["optimizer"])
        self.best.load_state_dict(state["best"])


class _CountingMeter(EpochMeter):
    """An epoch meter that counts image passes for its stage as well."""

    def __init__(self, stage: Stage[Any], device: torch.device) -> None:
        super().__init__(device)
        self._stage = stage

    def add(self, loss: Tensor, logits: Tensor, labels: Tensor) -> None:
        super().add(loss, logits, labels)
        self._stage.passed(len(labels))
