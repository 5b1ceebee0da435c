"""The searcher that goes on with what was found."""

from __future__ import annotations

from seu_bench.training import EpochlessStage
from seu_bench_inherit import InheritSearchOptions
from seu_bench_kit import Genotype, SearchTask


class InheritSearch(EpochlessStage[Genotype]):
    """The search of one task: a genotype at random for the first task, and that one for all others.

    Weights can be inherited only by units of the same genotype. That a search for each task finds better ones than
    lots do is not shown (docs/evidence/reproduction.md), so that nothing is given up for it.

    Example:
        ``genotype = InheritSearch(InheritSearchOptions(), task).run()``
    """

    def __init__(self, options: InheritSearchOptions, task: SearchTask) -> None:
        super().__init__("search", task.task, task.seed, task.device)
        self.space = task.space
        self.earlier = tuple(task.earlier)

    def result(self) -> Genotype:
        """The first task's genotype, which is drawn from the stage's own randomness."""
        return self.earlier[0] if self.earlier else self.space.random_genotype()
