"""The stage that trains a task's path."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any, Final, Literal, Protocol

import torch
from torch import nn

from seu_bench.config.protocol import Schedule
from seu_bench.errors import RequestError
from seu_bench.models.flops import RepeatedBatches
from seu_bench.models.multihead import MultiHeadModel
from seu_bench.training.loops import BestWeights, EpochMeter, cosine_rate, set_rate
from seu_bench.training.monitoring.stability import Stability
from seu_bench.training.phases import TaskData
from seu_bench.training.stage import EpochReport, Stage


class Trained(Protocol):
    """What the stage needs of a strategy, whose methods :class:`~seu_bench.training.StagedStrategy` describes."""

    schedule: Schedule
    lr_schedule: Literal["cosine", "constant", "plateau"]
    restore: Literal["best_valid", "last"]
    optimizer: torch.optim.Optimizer
    epoch_meter: EpochMeter | None
    eval_mb_size: int
    penalty_strength: str

    @property
    def model(self) -> MultiHeadModel:
        """That learns."""

    @property
    def device(self) -> torch.device:
        """On which it computes."""

    def seed_for(self, purpose: str, task: int) -> int:
        """The seed of the stage."""

    def trained_module(self, task: TaskData) -> nn.Module:
        """What trains."""

    def penalty_curvature(self, trained: Collection[str]) -> float | None:
        """By which unstable settings are noticed."""

    def begin_training(self, module: nn.Module, schedule: Schedule) -> None:
        """Called when the stage is made."""

    def training_mode(self) -> None:
        """Called before each epoch."""

    def train_one_epoch(self) -> None:
        """Train on all batches, with Avalanche's callbacks."""

    def validation_loss(self, task: TaskData, on_batch: Callable[[int], None]) -> float | None:
        """By which weights are selected."""


class TrainingStage(Stage[Any]):
    """Train a task's path; after each epoch validate, at the end restore the best weights (published code).

    Args:
        strategy: that learns.
        task: to learn.
        name: of the stage, on which its seed hangs, for strategies that train a task in several.
        schedule: of the stage; ``None``: the strategy's.
        restore: whether the best weights are restored or the last ones stay; ``None``: as the strategy does.
    """

    compiles_units = True

    def __init__(
        self,
        strategy: Trained,
        task: TaskData,
        name: str = "training",
        schedule: Schedule | None = None,
        restore: Literal["best_valid", "last"] | None = None,
    ) -> None:
        self.schedule = strategy.schedule if schedule is None else schedule
        super().__init__(name, task.index, self.schedule.epochs, strategy.seed_for(name, task.index), strategy.device)
        self.restores = restore or strategy.restore
        self.strategy = strategy
        self.data = task
        self.module = strategy.trained_module(task)
        self.best = BestWeights(self.module)
        moving, named = {*self.module.parameters()}, strategy.model.named_parameters()
        curvature = strategy.penalty_curvature({name for name, parameter in named if parameter in moving})
        if curvature is not None:
            self.stability = Stability.of(self.schedule, curvature, strategy.penalty_strength)
        self.batch_flops: dict[Hashable, tuple[int, int]] = {}  # as RepeatedBatches knows them
        strategy.begin_training(self.module, self.schedule)

    def run_epoch(self) -> EpochReport:
        """One epoch of training and one pass over the validation images."""
        strategy = self.strategy
        if strategy.lr_schedule == "cosine":
            set_rate(strategy.optimizer, cosine_rate(self.schedule, self.epoch))
        strategy.training_mode()
        report = self.train_epoch()
        if self.restores == "best_valid":
            loss = strategy.validation_loss(self.data, self.passed)
            if loss is not None:
                self.best.offer(loss)
        return report

    def train_epoch(self) -> EpochReport:
        """One epoch of training: what :meth:`passed` counts in a batch costs the same per image in all batches."""
        strategy, counted = self.strategy, self.image_passes
        with RepeatedBatches(self.batch_flops) as repeated:

            def on_batch(images: int) -> None:
                nonlocal counted
                self.passed(images)
                counted, before = self.image_passes, counted
                repeated.end(counted - before)  # the batch's own, and what the strategy added

            meter = strategy.epoch_meter = EpochMeter(strategy.device, on_batch, repeated.begin)
            try:
                strategy.train_one_epoch()
            finally:
                strategy.epoch_meter = None
        return meter.report

    def result(self) -> Any:
        """Restore the best weights; a subclass may return what it measured."""
        self.best.restore()

    def get_extra_state(self) -> dict[str, Any]:
        """Weights, optimiser, best weights, and what a subclass names."""
        return {
            "weights": self.module.state_dict(),
            "optimizer": self.strategy.optimizer.state_dict(),
            "best": self.best.state_dict(),
            "batch_flops": dict(self.batch_flops),
            **super().get_extra_state(),
        }

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned."""
        self.module.load_state_dict(state["weights"])
        self.strategy.optimizer.load_state_dict(state["optimizer"])
        self.best.load_state_dict(state["best"])
        self.batch_flops |= state.get("batch_flops", {})
        super().set_extra_state(state)


#: Epochs in a row without a new lowest validation loss, after which the rate is divided.
PATIENCE: Final = 5

#: What the rate is divided by.
DIVISOR: Final = 3.0


def fewest_epochs(schedule: Schedule) -> int:
    """Epochs that a training takes at least: the first has the lowest loss so far, and no other lowers it.

    Args:
        schedule: from ``learning_rate`` until it is below ``min_learning_rate``; with 0 it never is.

    Returns:
        The number, ``schedule.epochs`` at most.
    """
    rate, epochs = schedule.learning_rate, 1
    while schedule.min_learning_rate <= rate and epochs < schedule.epochs:
        rate, epochs = rate / DIVISOR, epochs + PATIENCE
    return min(epochs, schedule.epochs)


class PlateauStage(TrainingStage):
    """Train a task's path; divide the rate by :data:`DIVISOR` after :data:`PATIENCE` epochs without a lower validation
    loss, and end when it falls below ``min_learning_rate``.

    Args:
        strategy: that learns; it restores the weights of the lowest validation loss.
        task: to learn.

    Raises:
        RequestError: there are no validation images to follow.
    """

    state_attributes = ("rate", "waited")

    def __init__(self, strategy: Trained, task: TaskData) -> None:
        super().__init__(strategy, task)
        if task.valid is None or not len(task.valid) or strategy.restore != "best_valid":
            raise RequestError(
                "lr_schedule=plateau follows the validation loss, and there is none",
                where=f"stage 'training' of task {task.index}",
                remedy="choose restore=best_valid and a benchmark with validation images, or lr_schedule=cosine",
            )
        self.rate = strategy.schedule.learning_rate
        self.waited = 0

    def run_epoch(self) -> EpochReport:
        """One epoch of training at the present rate, and one pass over the validation images."""
        set_rate(self.strategy.optimizer, self.rate)
        lowest = self.best.loss
        report = super().run_epoch()
        self.waited = 0 if self.best.loss < lowest else self.waited + 1
        if self.waited == PATIENCE:
            self.rate, self.waited = self.rate / DIVISOR, 0
            self.ended = self.rate < self.strategy.schedule.min_learning_rate
        return report
