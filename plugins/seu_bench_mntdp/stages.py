"""The stages of a task: the prior, the training of a candidate, the measurement of one without new modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from seu_bench.data import TaskImages
from seu_bench.models import MultiHeadModel, RepeatedBatches, counted_as
from seu_bench.training import (
    EpochReport,
    Stage,
    StagedStrategy,
    TaskData,
    TrainingStage,
    cosine_rate,
    evaluate,
    knn_accuracy,
    set_rate,
)
from seu_bench_mntdp.candidate import Path
from seu_bench_mntdp.model import ModularResNet


class PriorStage(Stage[int]):
    """Which learned task is related to the new one: that on whose features nearest neighbours separate the new task's
    classes best. They are fitted on training images and scored on validation images.

    An epoch measures one body, which is a path without its head. Of tasks whose neighbours are equally good, as all are
    that share a body, that one counts whose own head, as it is, answers best, and of these the latest.

    Args:
        model: with a learned task or more.
        data: of the new task, with validation images.
        k: neighbours that vote.
        images: training images at most, the first ones: a task's images are in random order.
        batch_size: images per batch.
        seed, device: of the stage.
    """

    def __init__(
        self,
        model: ModularResNet,
        data: TaskData,
        k: int,
        images: int,
        batch_size: int,
        seed: int,
        device: torch.device,
    ) -> None:
        self.bodies = bodies(model.paths)
        super().__init__("prior", data.index, len(self.bodies), seed, device)
        self.model = model
        self.fitted = data.train.part(0, images)
        self.scored = data.train if data.valid is None else data.valid
        self.k = k
        self.batch_size = batch_size
        self.scores: dict[int, tuple[float, float]] = {}

    def run_epoch(self) -> EpochReport:
        """Score all tasks of one body."""
        tasks = self.bodies[self.epoch]
        self.model.eval()
        fitted, scored = (self._features(images, tasks[0]) for images in (self.fitted, self.scored))
        with counted_as(lambda: 0):  # neighbours are no network
            accuracy = knn_accuracy(*fitted, *scored, k=self.k)
        self.scores |= {task: (accuracy, self._head_accuracy(task, *scored)) for task in tasks}
        return EpochReport(accuracy=accuracy)

    def result(self) -> int:
        """The related task."""
        return max(self.scores, key=lambda task: (self.scores[task], task))

    def get_extra_state(self) -> dict[str, Any]:
        """The scores so far."""
        return {"scores": [[task, *score] for task, score in self.scores.items()]}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned."""
        self.scores = {int(task): (accuracy, head) for task, accuracy, head in state["scores"]}

    def _features(self, images: TaskImages, task: int) -> tuple[Tensor, Tensor]:
        rows, labels = [], []
        with torch.no_grad(), RepeatedBatches() as repeated:
            for x, y in images.batches(self.batch_size, shuffle=False):
                repeated.begin()
                rows.append(self.model.features(x, task))
                repeated.end(len(y))
                labels.append(y)
                self.passed(len(y))
        return torch.cat(rows), torch.cat(labels)

    def _head_accuracy(self, task: int, features: Tensor, labels: Tensor) -> float:
        if not self.model.can_reuse_head(task):
            return 0.0
        with torch.no_grad():
            answers = self.model.head(task)(features).argmax(dim=1)
        return float((answers == labels).double().mean())


def bodies(paths: Sequence[Path]) -> list[list[int]]:
    """Tasks by the body that they share, in the order in which the bodies were made."""
    found: dict[Path, list[int]] = {}
    for task, path in enumerate(paths):
        found.setdefault(path[:-1], []).append(task)
    return list(found.values())


class CandidateStage(TrainingStage):
    """Train the new modules of the candidate that is tried; the result is its accuracy on the validation images.

    With ``restore=best_valid`` the weights of the lowest validation loss are kept and it is their accuracy; otherwise
    the last ones. What epochs report is the loss in training and the accuracy on the validation images.

    Args:
        strategy: that learns.
        data: of the task.
        name: of the stage.
        patience: steps without a lower validation loss after which it ends, with the epoch that they end in; ``None``:
            it has all epochs.
    """

    def __init__(self, strategy: StagedStrategy, data: TaskData, name: str, patience: int | None = None) -> None:
        super().__init__(strategy, data, name)
        self.learner = strategy
        self.patience = patience
        self.waited = 0
        self.accuracy = 0.0

    def run_epoch(self) -> EpochReport:
        """One epoch of training and one pass over the validation images, after which no patience may be left."""
        if self.learner.lr_schedule == "cosine":
            set_rate(self.learner.optimizer, cosine_rate(self.schedule, self.epoch))
        self.learner.training_mode()
        report = self.train_epoch()
        selects, is_last = self.restores == "best_valid", self.epoch == self.epochs - 1
        if self.data.valid is None or not len(self.data.valid) or not (selects or is_last):
            return report
        accuracy, loss = measured(self.learner.model, self.data, self.learner.eval_mb_size, self.passed)
        self.waited += self.learner.batches_per_epoch
        if loss < self.best.loss or not selects:
            self.accuracy, self.waited = accuracy, 0
        if selects:
            self.best.offer(loss)
            self.ended = self.patience is not None and self.waited >= self.patience
        return EpochReport(report.loss, accuracy)

    def result(self) -> float:
        """Accuracy in [0, 1] with the weights that are kept; 0 where there are no validation images."""
        super().result()
        return self.accuracy

    def get_extra_state(self) -> dict[str, Any]:
        """That of a training, the patience that is used up, and the accuracy of the weights that would be kept."""
        return {**super().get_extra_state(), "waited": self.waited, "accuracy": self.accuracy}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned."""
        super().set_extra_state(state)
        self.waited, self.accuracy = state["waited"], state["accuracy"]


class ReusedStage(Stage["float | None"]):
    """Measure a candidate in which nothing is new; the result is its accuracy on the validation images.

    Args:
        model: the candidate is tried in it; where none is, because a head does not fit, the result is ``None``.
        data: of the task.
        name: of the stage.
        batch_size: images per batch.
        seed, device: of the stage.
    """

    def __init__(
        self, model: ModularResNet, data: TaskData, name: str, batch_size: int, seed: int, device: torch.device
    ) -> None:
        super().__init__(name, data.index, 0 if model.tried is None else 1, seed, device)
        self.model = model
        self.data = data
        self.batch_size = batch_size

    def run_epoch(self) -> EpochReport:
        """One pass over the validation images."""
        accuracy, loss = measured(self.model, self.data, self.batch_size, self.passed)
        return EpochReport(loss, accuracy)

    def result(self) -> float | None:
        """Accuracy in [0, 1]."""
        return self.report.accuracy

    def get_extra_state(self) -> dict[str, Any]:
        """Nothing beside the report."""
        return {}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Ignore ``state``, which is empty."""


def measured(
    model: MultiHeadModel, data: TaskData, batch_size: int, on_batch: Callable[[int], None]
) -> tuple[float, float]:
    """Accuracy in [0, 1] and loss of a task as it is computed now, on its validation images."""
    images = data.train if data.valid is None else data.valid
    model.eval()
    return evaluate(partial(model.forward_single_task, task_label=data.index), images, batch_size, on_batch)
