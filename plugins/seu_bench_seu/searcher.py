"""The MDL searcher: one operation per edge is sampled per epoch, and probabilities learn from its accuracy
(paper, algorithm 2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seu_bench.training import Forward
from seu_bench_kit import EDGES, OPERATIONS, Genotype, Sample, SearchTask, proxy_network
from seu_bench_seu.multinomial import MultinomialStage
from seu_bench_seu.options import SearchOptions


class MdlSearch(MultinomialStage[Genotype]):
    """The search of one task: fresh proxy network, fresh tables."""

    def __init__(self, options: SearchOptions, task: SearchTask) -> None:
        schedule = options.applied_to(task.schedule)
        super().__init__("search", task.task, options, schedule, task.images, task.seed, task.device)
        self.space = task.space
        with self.randomness.active():
            self.network = proxy_network(task, schedule)
        self.start(self.network, [len(OPERATIONS)] * (len(EDGES) * task.space.cell_types))

    def forward_of(self, sampled: Sequence[int]) -> Forward:
        """The proxy network with the sampled operations."""
        # With one cell type the same rows serve both kinds of cell.
        sample: Sample = (sampled[: len(EDGES)], sampled[-len(EDGES) :])
        return self.network.sampled(sample)

    def set_mode(self, training: bool) -> None:
        """Switch the proxy network."""
        self.network.train(training)

    def result(self) -> Genotype:
        """The genotype of the last probabilities."""
        rows = self.tables.probabilities
        tables = [np.stack(rows[start : start + len(EDGES)]) for start in range(0, len(rows), len(EDGES))]
        return self.space.derive(tables, self.tie_order)
