"""Experience replay."""

from __future__ import annotations

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from seu_bench import Balanced, Method
from seu_bench.config import BackboneOptions, MemoryOptions
from seu_bench.training import TaskData


class ReplayOptions(BackboneOptions, MemoryOptions):
    """Options of a method that replays images of its memory with each batch."""

    batch_size_mem: PositiveInt | None = Field(
        None, description="images of the memory per batch; as many as new ones if absent"
    )


class Replay(Method):
    """Experience replay from a balanced memory."""

    name = "replay"
    Options = ReplayOptions

    options: ReplayOptions

    def setup(self) -> None:
        """Begin with an empty memory, in which each task has the same share."""
        each = self.options.memory_per_class
        self.memory = Balanced(self.options.memory, each=each, by="class" if each else "task")

    def extend_batch(self, x: Tensor, y: Tensor, task: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Put remembered images behind the new ones: the loss is the mean over all."""
        if not len(self.memory):
            return x, y, task
        old = self.memory.draw(self.options.batch_size_mem or self.train_mb_size)
        return torch.cat([x, old.x]), torch.cat([y, old.y]), torch.cat([task, old.task])

    def after_task(self, task: TaskData) -> None:
        """Keep images of the task."""
        self.memory.add_images(task.train)
