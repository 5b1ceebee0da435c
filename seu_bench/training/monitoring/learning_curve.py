"""How fast a task is learned: its test accuracy before training and after each of the first batches."""

from __future__ import annotations

from typing import Any

import torch
from avalanche.evaluation import PluginMetric

from seu_bench.data.images import TaskImages
from seu_bench.models.flops import counted_as
from seu_bench.models.modes import modes_kept


class LearningCurves(PluginMetric[list[list[float]]]):
    """For each task ``batches + 1`` accuracies on its test images: the curve that LCA is the area under.

    They are measured only, and change nothing: no random number is drawn, modes are restored, the operations are not
    those of the stage. A task has no curve where something was computed with its images before its training, by a
    search, a creation or a prior: there the first batches are no beginning. Nor has one whose task is to be inferred.

    Args:
        tasks: length of the stream.
        batches: B of LCA@B.

    Example:
        ``curves = LearningCurves(5, 10); curves.begin(task, images); strategy.train(experience); curves.result()``
    """

    def __init__(self, tasks: int, batches: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tasks = tasks
        self.batches = batches
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.curves: list[list[float]] = [[] for _ in range(self.tasks)]
        self._task = -1
        self._images: TaskImages | None = None

    def result(self) -> list[list[float]]:
        """The curve of each task as far as it was measured; empty where there is none."""
        return [list(curve) for curve in self.curves]

    def begin(self, task: int, images: TaskImages) -> None:
        """Take note that a task is learned from now on.

        Args:
            task: 0-based.
            images: its test images.
        """
        self._task, self._images = task, images if len(self.curves[task]) <= self.batches else None

    def stop(self) -> None:
        """Measure nothing more of the present task: something was trained on it, or its training is over."""
        self._images = None

    def before_training_epoch(self, strategy: Any) -> None:
        """Measure before the first batch."""
        if self._images is not None and not self.curves[self._task]:
            self._measure(strategy, self._images)

    def after_training_iteration(self, strategy: Any) -> None:
        """Measure after one of the first batches."""
        super().after_training_iteration(strategy)
        if self._images is not None:
            self._measure(strategy, self._images)

    def __str__(self) -> str:
        return "LearningCurves"

    def _measure(self, strategy: Any, images: TaskImages) -> None:
        model, correct = strategy.model, torch.zeros((), dtype=torch.int64, device=images.device)
        with (
            modes_kept(model),
            torch.no_grad(),
            torch.autocast(images.device.type, enabled=False),
            counted_as(lambda: 0),
        ):
            model.eval()
            for x, y in images.batches(strategy.eval_mb_size, shuffle=False):
                correct += (model(x, images.task_label).argmax(dim=1) == y).sum()
        self.curves[self._task].append(int(correct) / len(images))
        if len(self.curves[self._task]) > self.batches:
            self.stop()
