"""The stages of a task: the prior, the training of a candidate, the measurement of one without new modules."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from seu_bench.data import TaskImages
from seu_bench.models import MultiHeadModel, RepeatedBatches, counted_as
from seu_bench.training import (
    EpochlessStage,
    EpochReport,
    Stage,
    StagedStrategy,
    TaskData,
    TrainingStage,
    evaluate,
    knn_accuracy,
)
from seu_bench_mntdp.model import ModularResNet, Path


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
        with torch.no_grad(), counted_as(lambda: 0):
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

    Args:
        strategy: that learns.
        data: of the task.
        name: of the stage.
        patience: steps without a lower validation loss after which it ends, at the end of their epoch; ``None``: it
            has all epochs.
    """

    def __init__(self, strategy: StagedStrategy, data: TaskData, name: str, patience: int | None = None) -> None:
        super().__init__(strategy, data, name)
        self.learner = strategy
        self.patience = patience if self.restores == "best_valid" else None
        self.waited = 0

    def run_epoch(self) -> EpochReport:
        """One epoch, after which there may be no patience left."""
        lowest = self.best.loss
        report = super().run_epoch()
        self.waited = 0 if self.best.loss < lowest else self.waited + self.learner.batches_per_epoch
        self.ended = self.patience is not None and self.best.loss < math.inf and self.waited >= self.patience
        return report

    def result(self) -> float:
        """Accuracy in [0, 1] with the weights that are kept."""
        super().result()
        return measured(self.learner.model, self.data, self.learner.eval_mb_size, self.passed)

    def get_extra_state(self) -> dict[str, Any]:
        """That of a training, and the patience that is used up."""
        return {**super().get_extra_state(), "waited": self.waited}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned."""
        super().set_extra_state(state)
        self.waited = state["waited"]


class ReusedStage(EpochlessStage["float | None"]):
    """Measure a candidate in which nothing is new; the result is its accuracy on the validation images.

    Args:
        model: the candidate is tried in it; where it is not, because a head does not fit, the result is ``None``.
        data: of the task.
        name: of the stage.
        batch_size: images per batch.
        seed, device: of the stage.
    """

    def __init__(
        self, model: ModularResNet, data: TaskData, name: str, batch_size: int, seed: int, device: torch.device
    ) -> None:
        super().__init__(name, data.index, seed, device)
        self.model = model
        self.data = data
        self.batch_size = batch_size

    def result(self) -> float | None:
        """Accuracy in [0, 1]."""
        if self.model.tried is None:
            return None
        return measured(self.model, self.data, self.batch_size, self.passed)


def measured(model: MultiHeadModel, data: TaskData, batch_size: int, on_batch: Callable[[int], None]) -> float:
    """Accuracy in [0, 1] of a task as it is computed now, on its validation images."""
    images = data.train if data.valid is None else data.valid
    model.eval()
    forward = partial(model.forward_single_task, task_label=data.index)
    accuracy, _ = evaluate(forward, images, batch_size, on_batch)
    return accuracy
