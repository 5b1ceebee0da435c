"""Base of models that are computed, not trained, and what the strength of their shrinkage is chosen on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from seu_bench.config.streams import Scenario
from seu_bench.data import TaskImages
from seu_bench.models.multihead import MultiHeadModel
from seu_bench.training import TaskData


class UntrainedModel(MultiHeadModel):
    """Base of models without layers of their own for a task: all of it answers each, and it knows how many came.

    Args:
        classes: number of classes of each task.
        scenario: ``domain``: tasks share their classes; otherwise they have classes of their own.
        open_ended: whether tasks may be added: then nothing is computed of classes to come, if only of zeros.

    Attributes:
        what: what it is, for errors.
        tasks: number of tasks seen.
        outputs: number of classes of all tasks, C.
        counts: ``[C]`` images of each class.

    Example:
        ``class ClassMeans(UntrainedModel): what = "class means"``
    """

    what: ClassVar[str]
    tasks: int = 0
    counts: Tensor

    def __init__(self, classes: Sequence[int], scenario: Scenario, *, open_ended: bool = False) -> None:
        super().__init__(classes)
        self.scenario, self.open_ended = scenario, open_ended
        self.outputs = classes[0] if scenario == "domain" else sum(classes)
        self.register_buffer("counts", torch.zeros(self.outputs))

    @property
    def rows(self) -> int:
        """Number of classes that are computed with."""
        grows = self.open_ended and self.scenario != "domain"
        return sum(self.classes_per_task[: self.tasks]) if grows else self.outputs

    def first_class(self, task: int) -> int:
        """Place of a task's first class among all, from which its labels count."""
        return sum(self.classes_per_task[:task]) if self.scenario == "task" else 0

    def answer(self, x: Tensor, weight: Tensor, offset: Tensor, task: int) -> Tensor:
        """Return logits of the classes seen, or of the task's where the task is known.

        Args:
            x: ``[N, D]``.
            weight, offset: ``[C, D]`` and ``[C]``, of all classes.
            task: 0-based.
        """
        first = self.first_class(task)
        last = sum(self.classes_per_task[: self.tasks])
        if self.scenario != "class":
            last = first + self.classes_per_task[task]
        known = self.counts[first:last] > 0
        offset = torch.where(known, offset[first:last], torch.finfo(x.dtype).min)
        return linear(x, weight[first:last], offset)

    def begin_task(self, task: int) -> None:
        """Answer with the classes of ``task``, too."""
        self.tasks = task + 1

    def task_module(self, task: int) -> nn.Module:
        """All of it."""
        return self

    def architecture(self) -> dict[str, Any]:
        """The number of tasks seen."""
        return {"tasks_seen": self.tasks}

    def load_architecture(self, architecture: Mapping[str, Any]) -> None:
        """Answer with the classes of as many tasks.

        Raises:
            ValueError: it is the architecture of another model.
        """
        if list(architecture) != ["tasks_seen"] or not 0 <= architecture["tasks_seen"] <= len(self.classes_per_task):
            raise ValueError(f"it is not the architecture of {self.what}")
        self.tasks = architecture["tasks_seen"]


def withhold(task: TaskData) -> tuple[TaskImages, TaskImages]:
    """Return the images of a task to learn, and those to choose a strength on: training and validation images; where it
    has none of these, four fifths and one fifth of the training images."""
    if task.valid is not None and len(task.valid):
        return task.train, task.valid
    fifth = torch.arange(len(task.train), device=task.train.device) % 5 == 4
    return task.train.subset((~fifth).nonzero().flatten()), task.train.subset(fifth.nonzero().flatten())
