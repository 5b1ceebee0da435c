"""The search that does not search."""

from __future__ import annotations

from typing import Any

from seu_bench.training import EpochlessStage
from seu_bench_kit import SearchTask
from seu_bench_random import RandomOptions


class RandomSearch(EpochlessStage[Any]):
    """Only its result counts, and it depends on the seed alone."""

    def __init__(self, options: RandomOptions, task: SearchTask) -> None:
        super().__init__("search", task.task, task.seed, task.device)
        self.space = task.space

    def result(self) -> Any:
        """Drawn now, from the stage's own randomness."""
        return self.space.random_genotype()
