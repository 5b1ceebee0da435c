"""Task as a strategy receives it, and a phase of learning it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from seu_bench.data.images import TaskImages
from seu_bench.training.stage import Stage


@dataclass(frozen=True)
class TaskData:
    """Data to learn a task from: its training and validation images. Its test images are not here."""

    index: int
    train: TaskImages
    valid: TaskImages | None


@dataclass(frozen=True)
class Phase:
    """A stage of learning a task, made when its turn comes, and what is done with its result.

    A strategy's model and memory change in :attr:`make` and :attr:`apply` only, and :attr:`make` does the same
    whenever it finds the strategy as it was: a resumed run makes the stage again and gives it its state.
    """

    make: Callable[[], Stage[Any]]
    apply: Callable[[Any], None] | None = None
