"""ER-ACE: replay with asymmetric cross-entropy (Caccia et al., ICLR 2022)."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field, PositiveInt
from torch import Tensor
from torch.nn.functional import cross_entropy

from seu_bench import Balanced, Method, Reservoir
from seu_bench.config import LEARNING_RATES, BackboneOptions, MemoryOptions, TuningGrid
from seu_bench.training import TaskData
from seu_bench_methods.replay import make_memory


class ErAce(Method):
    """Replay with asymmetric cross-entropy (Caccia et al. 2022)."""

    name = "er_ace"
    title = "ER-ACE"
    citation = "seu_bench_kit:caccia2022new"
    online = True  # its memory then needs no beginning of a task

    class Options(BackboneOptions, MemoryOptions):
        """Options of ER-ACE."""

        tuning_grid: ClassVar[TuningGrid] = {"batch_size_mem": (10, 32), "learning_rate": LEARNING_RATES}

        batch_size_mem: PositiveInt = Field(10, description="images of the memory per batch")

    options: Options

    def setup(self) -> None:
        """Begin with an empty memory, in which each label has the same share."""
        self.memory = make_memory(self.options, self.plan, "label")

    def before_task(self, task: TaskData) -> None:
        """Keep images of the task at once, so that its classes are replayed as well."""
        if isinstance(self.memory, Balanced):
            self.memory.add_images(task.train)

    def batch_loss(self, x: Tensor, y: Tensor, task: Tensor, logits: Tensor) -> Tensor:
        """``(CE(x, y) among the classes of the batch + CE(x', y') of the memory among all) / 2``; in the first task,
        or in the first batch of an online stream, ``CE(x, y)``."""
        has_begun = self.learned if isinstance(self.memory, Balanced) else len(self.memory)
        old = self.memory.draw(self.options.batch_size_mem) if has_begun else None
        if isinstance(self.memory, Reservoir):
            self.memory.add(x=x, y=y, task=task)
        if old is None:
            return cross_entropy(logits, y)
        present = torch.zeros(logits.shape[1], dtype=torch.bool, device=y.device).index_fill(0, y, True)
        replayed = cross_entropy(self.replay(old.x, old.task), old.y)
        return (cross_entropy(logits.masked_fill(~present, -torch.inf), y) + replayed) / 2
