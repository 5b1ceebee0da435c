"""Training on the images of all tasks so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seu_bench import Method
from seu_bench.config import BackboneOptions
from seu_bench.data import TaskImages
from seu_bench.data.avalanche import task_images
from seu_bench.results import REFERENCE_ROWS
from seu_bench.training import KeptImages, TaskData


class Cumulative(Method):
    """Trains on the images of all tasks so far."""

    name = "cumulative"
    title = "cumulative training"
    reference = REFERENCE_ROWS["cumulative"]
    revisits_tasks = True

    class Options(BackboneOptions):
        """Options of training on all images so far."""

    def setup(self) -> None:
        """Begin without images."""
        self.tasks = 0

    def before_task(self, task: TaskData) -> None:
        """Take note that the images of the task stay."""
        self.tasks = task.index + 1

    def training_images(self, task: TaskData) -> Sequence[TaskImages]:
        """Those of each task so far."""
        stream: Any = self.experience.origin_stream
        earlier = [task_images(stream[it].dataset.train(), it, self.device) for it in range(task.index)]
        return [*earlier, task.train]

    def kept(self) -> Mapping[str, Any]:
        """Return the model, and all images so far."""
        kept = [KeptImages(self.plan.tasks[it].num_train, self.plan.stored_shape(it)) for it in range(self.tasks)]
        return {**super().kept(), "exemplars": kept}
