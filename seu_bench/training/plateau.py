"""A training whose learning rate follows the validation loss, and which ends when the rate is small (published code of
Serra et al., ICML 2018)."""

from __future__ import annotations

from typing import Final

from seu_bench.config.protocol import Schedule
from seu_bench.errors import RequestError
from seu_bench.training.loops import set_rate
from seu_bench.training.phases import TaskData
from seu_bench.training.stage import EpochReport
from seu_bench.training.task_training import Trained, TrainingStage

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
