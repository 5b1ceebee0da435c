"""The MDL searcher: one operation per edge is sampled per epoch, and probabilities learn from its accuracy
(paper, algorithm 2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from seu_bench.cells import ProxyNetwork, Sample
from seu_bench.interfaces import SearchTask
from seu_bench.loops import evaluate, train_epoch
from seu_bench.search_space import EDGES, OPERATIONS, Genotype
from seu_bench.stages import EpochReport, Stage, cosine_rate, make_sgd, set_rate
from seu_bench_seu.mdl import MultinomialTables
from seu_bench_seu.options import SearchOptions


class MdlSearch(Stage[Genotype]):
    """The search of one task: fresh proxy network, fresh tables; weights train on the first half of the training
    images, accuracies come from the second."""

    def __init__(self, options: SearchOptions, task: SearchTask) -> None:
        schedule = options.applied_to(task.schedule)
        super().__init__("search", task.task, schedule.epochs, task.seed, task.device)
        self.schedule = schedule
        self.options = options
        self.space = task.space
        self.train_images, self.score_images = task.images.halves()
        with self.randomness.active():
            self.network = ProxyNetwork(
                task.images.channels, task.classes, schedule.cells, schedule.channels, task.space
            ).to(task.device)
        self.parameters = list(self.network.parameters())
        self.optimizer = make_sgd(self.parameters, schedule)
        self.tables = MultinomialTables(
            [len(OPERATIONS)] * (len(EDGES) * task.space.cell_types),
            alpha=options.alpha,
            scope=options.update,
            normalisation=options.normalisation,
        )

    def run_epoch(self) -> EpochReport:
        """Sample, train one epoch, measure, learn."""
        chosen = self.tables.sample()
        # With one cell type the same rows serve both kinds of cell.
        sample: Sample = (chosen[: len(EDGES)], chosen[-len(EDGES) :])
        set_rate(self.optimizer, cosine_rate(self.schedule, self.epoch))

        def forward(images: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.network(images, sample)
            return logits

        self.network.train()
        loss = train_epoch(
            forward,
            self.parameters,
            self.optimizer,
            self.train_images,
            self.schedule,
            self.passed,
            self.options.unsampled,
        )
        self.network.eval()
        accuracy, _ = evaluate(forward, self.score_images, self.schedule.batch_size, self.passed)
        self.tables.learn(chosen, accuracy)
        return EpochReport(loss, accuracy)

    def result(self) -> Genotype:
        """The genotype of the last probabilities."""
        rows = self.tables.probabilities
        tables = [np.stack(rows[: len(EDGES)]), np.stack(rows[-len(EDGES) :])]
        if self.options.tie_break == "random":
            return self.space.derive(tables, lambda count: torch.randperm(count).tolist())
        return self.space.derive(tables)

    def own_state(self) -> dict[str, Any]:
        """Weights, optimiser and tables."""
        return {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "tables": self.tables.state_dict(),
        }

    def load_own_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`own_state` gave."""
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.tables.load_state_dict(state["tables"])
