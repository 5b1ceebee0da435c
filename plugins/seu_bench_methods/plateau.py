"""A training whose learning rate follows the validation loss, as HAT's published code has it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, Literal, Self

from pydantic import Field, model_validator

from seu_bench.config import Schedule, SelectingOptions
from seu_bench.errors import RequestError
from seu_bench.training import Cost, EpochReport, StageCost, TaskData, TrainingStage, set_rate

#: Epochs in a row without a new lowest validation loss, after which the rate is divided, and what it is divided by.
PATIENCE: Final = 5
DIVISOR: Final = 3.0


class PlateauOptions(SelectingOptions):
    """Options of a method that can also follow the validation loss, so that a training may end early."""

    lr_schedule: Literal["cosine", "constant", "plateau"] = Field(  # type: ignore[assignment]
        "cosine",
        description="learning rate over the epochs of a task; plateau: divided by 3 after 5 epochs without a lower "
        "validation loss, until it is below min_learning_rate",
    )

    @model_validator(mode="after")
    def _plateau_selects(self) -> Self:
        if self.lr_schedule == "plateau" and (self.restore == "last" or self.milestones or self.warmup_epochs):
            raise ValueError("lr_schedule=plateau needs restore=best_valid, and has no milestones or warm-up")
        return self


def follows_validation(options: PlateauOptions) -> bool:
    """Whether it is the validation loss that ends a training."""
    return options.lr_schedule == "plateau"


def fewest_epochs(schedule: Schedule) -> int:
    """Count the epochs that a training takes at least: the first has the lowest loss, and no other lowers it."""
    rate, epochs = schedule.learning_rate, 1
    while schedule.min_learning_rate <= rate and epochs < schedule.epochs:
        rate, epochs = rate / DIVISOR, epochs + PATIENCE
    return min(epochs, schedule.epochs)


def at_least(cost: Cost, schedule: Schedule) -> Cost:
    """Return a cost whose trainings may end as early as they can."""

    def shortened(it: StageCost) -> StageCost:
        if it.name != "training" or not it.flops:
            return it
        own = schedule.of_task(it.task)
        return replace(it, flops_min=it.flops // own.epochs * fewest_epochs(own))

    return replace(cost, stages=tuple(map(shortened, cost.stages)))


class PlateauStage(TrainingStage):
    """Train a task's path; divide the rate by :data:`DIVISOR` after :data:`PATIENCE` epochs without a lower validation
    loss, and end when it falls below ``min_learning_rate``.

    Raises:
        RequestError: there are no validation images to follow.
    """

    state_attributes = ("rate", "waited")

    def __init__(self, strategy: Any, task: TaskData) -> None:
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
