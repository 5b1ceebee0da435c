"""GDumb (A. Prabhu et al., "GDumb: A Simple Approach that Questions Our Progress in Continual Learning", ECCV 2020)."""

from __future__ import annotations

from collections.abc import Sequence

from seu_bench import Balanced, Method
from seu_bench.config import BackboneOptions, MemoryOptions
from seu_bench.data import TaskImages
from seu_bench.training import TaskData


class Gdumb(Method):
    """Trains anew on a balanced memory only (Prabhu et al. 2020)."""

    name = "gdumb"
    title = "GDumb"
    citation = "seu_bench_kit:prabhu2020gdumb"

    class Options(BackboneOptions, MemoryOptions):
        """Options of GDumb."""

    options: Options

    def setup(self) -> None:
        """Begin with an empty memory, in which each label has the same share, and note the initial weights."""
        each = self.options.memory_per_class
        self.memory = Balanced(self.options.memory, each=each, by="class" if each else "label")
        self.initial_weights = {name: weight.clone() for name, weight in self.model.state_dict().items()}

    def before_task(self, task: TaskData) -> None:
        """Keep images of the task, and put the initial weights back."""
        self.memory.add_images(task.train)
        self.model.load_state_dict(self.initial_weights)

    def training_images(self, task: TaskData) -> Sequence[TaskImages]:
        """The memory, and nothing else."""
        return self.memory.tables()
