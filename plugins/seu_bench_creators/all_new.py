"""No choice: the newest unit of every layer."""

from __future__ import annotations

from seu_bench.training import CreationTask, EpochlessStage
from seu_bench_creators import AllNewOptions
from seu_bench_creators.paths import Path, newest_path


class AllNewCreation(EpochlessStage[Path]):
    """Nothing is tried and nothing trained."""

    def __init__(self, options: AllNewOptions, task: CreationTask) -> None:
        super().__init__("creation", task.task, task.seed, task.device)
        self.model = task.model

    def result(self) -> Path:
        """The newest unit of each layer."""
        return newest_path(self.model)
