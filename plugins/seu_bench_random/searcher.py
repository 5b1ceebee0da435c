"""The search that does not search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seu_bench.interfaces import SearchTask
from seu_bench.search_space import Genotype
from seu_bench.stages import EpochReport, Stage


class RandomSearch(Stage[Genotype]):
    """A stage without epochs: only its result counts, and it depends on the seed alone."""

    def __init__(self, task: SearchTask) -> None:
        super().__init__("search", task.task, 0, task.seed, task.device)
        self.space = task.space

    def run_epoch(self) -> EpochReport:
        """Never called: there are no epochs."""
        return EpochReport()

    def result(self) -> Genotype:
        """Drawn now, from the stage's own randomness."""
        return self.space.random_genotype()

    def own_state(self) -> dict[str, Any]:
        """Nothing: the stage keeps its randomness itself."""
        return {}

    def load_own_state(self, state: Mapping[str, Any]) -> None:
        """Nothing."""
