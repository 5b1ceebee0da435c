"""Base of models that are computed, not trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import nn

from seu_bench.models.multihead import MultiHeadModel


class UntrainedModel(MultiHeadModel):
    """Base of models without layers of their own for a task: all of it answers each, and it knows how many came.

    Attributes:
        what: what it is, for errors.
        tasks: number of tasks seen.

    Example:
        ``class ClassMeans(UntrainedModel): what = "class means"``
    """

    what: ClassVar[str]
    tasks: int = 0

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
