"""From scratch: each task begins with the initial weights."""

from __future__ import annotations

from seu_bench import Method
from seu_bench.config import BackboneOptions
from seu_bench.training import TaskData


class FromScratch(Method):
    """Begins each task with the initial weights: what one task alone can reach."""

    name = "from_scratch"
    title = "training from scratch"

    class Options(BackboneOptions):
        """Options of the backbone."""

    def setup(self) -> None:
        """Remember the initial weights, and buffers such as those of BatchNorm."""
        self.initial = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}

    def before_task(self, task: TaskData) -> None:
        """Put them back."""
        self.model.load_state_dict(self.initial)
