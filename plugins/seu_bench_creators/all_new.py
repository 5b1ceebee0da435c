"""No choice: the newest unit of every layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seu_bench.interfaces import CreationTask
from seu_bench.stages import EpochReport, Stage
from seu_bench_creators.paths import newest_path


class AllNewCreation(Stage[tuple[int, ...]]):
    """A stage without epochs."""

    def __init__(self, task: CreationTask) -> None:
        super().__init__("creation", task.task, 0, task.seed, task.device)
        self.model = task.model

    def run_epoch(self) -> EpochReport:
        """Never called: there are no epochs."""
        return EpochReport()

    def result(self) -> tuple[int, ...]:
        """The newest unit of each layer."""
        return newest_path(self.model)

    def own_state(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def load_own_state(self, state: Mapping[str, Any]) -> None:
        """Nothing."""
