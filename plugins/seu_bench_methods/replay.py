"""Experience replay."""

from __future__ import annotations

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from seu_bench import Balanced, Method, Reservoir
from seu_bench.config import BackboneOptions, MemoryOptions
from seu_bench.data import StreamPlan
from seu_bench.training import TaskData
from seu_bench.training.memories import Grouping


class ReplayOptions(BackboneOptions, MemoryOptions):
    """Options of a method that replays images of its memory with each batch."""

    batch_size_mem: PositiveInt | None = Field(
        None, description="images of the memory per batch; as many as new ones if absent"
    )


def make_memory(options: MemoryOptions, plan: StreamPlan, by: Grouping) -> Balanced | Reservoir:
    """Make an empty memory: of online streams a reservoir, which is shown batch by batch; of others one in which each
    class has its share, or each group ``by`` where ``options`` give images in all."""
    each = options.memory_per_class
    if plan.online:
        return Reservoir(options.memory or (each or 1) * sum(plan.classes_per_task))
    return Balanced(options.memory, each=each, by="class" if each else by)


class Replay(Method):
    """Experience replay from a balanced memory."""

    name = "replay"
    title = "ER"
    citation = "seu_bench_kit:chaudhry2019tiny"
    online = True  # its memory then needs no end of a task
    Options = ReplayOptions

    options: ReplayOptions

    def setup(self) -> None:
        """Begin with an empty memory, in which each task has the same share."""
        self.memory = make_memory(self.options, self.plan, "task")

    def extend_batch(self, x: Tensor, y: Tensor, task: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Put remembered images behind the new ones: the loss is the mean over all; a reservoir then sees the batch."""
        old = self.memory.draw(self.options.batch_size_mem or self.train_mb_size) if len(self.memory) else None
        if isinstance(self.memory, Reservoir):
            self.memory.add(x=x, y=y, task=task)
        if old is None:
            return x, y, task
        return torch.cat([x, old.x]), torch.cat([y, old.y]), torch.cat([task, old.task])

    def after_task(self, task: TaskData) -> None:
        """Keep images of the task."""
        if isinstance(self.memory, Balanced):
            self.memory.add_images(task.train)
