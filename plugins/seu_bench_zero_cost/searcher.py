"""Draw genotypes, score each at initialisation, take the best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from seu_bench.errors import RunError
from seu_bench.training import EpochReport, Stage
from seu_bench_kit import Genotype, SearchTask, genotype_network
from seu_bench_zero_cost import ZeroCostOptions
from seu_bench_zero_cost.scores import naswot, synflow


class ZeroCostSearch(Stage[Genotype]):
    """The search of one task. An epoch draws one genotype and scores it; all see the same batch of training images."""

    def __init__(self, options: ZeroCostOptions, task: SearchTask) -> None:
        super().__init__("search", task.task, options.candidates, task.seed, task.device)
        self.options = options
        self.search_task = task
        self.schedule = options.applied_to(task.schedule)
        count = min(options.images, len(task.images))
        with self.randomness.active():
            chosen = torch.randperm(len(task.images))[:count]
        self.images = task.images.gather(chosen.to(task.images.device))[0]
        self.genotypes: list[Genotype] = []
        self.scores: dict[str, list[float]] = {
            name: [] for name in ("naswot", "synflow") if options.score in (name, "both")
        }

    def run_epoch(self) -> EpochReport:
        """Draw a genotype and score it."""
        genotype = self.search_task.space.random_genotype()
        network = genotype_network(self.search_task, self.schedule, genotype)
        self.genotypes.append(genotype)
        if "synflow" in self.scores:
            shape = tuple(self.images.shape[1:])
            self._keep("synflow", synflow(network, (shape[0], shape[1], shape[2])))
            self.passed(1)
        if "naswot" in self.scores:
            self._keep("naswot", naswot(network, self.images))
            self.passed(len(self.images))
        return EpochReport()

    def result(self) -> Genotype:
        """The genotype of the best score, or of the best sum of ranks; of equal ones the first drawn."""
        totals = [sum(ranks) for ranks in zip(*(ranked(scores) for scores in self.scores.values()), strict=True)]
        return self.genotypes[totals.index(max(totals))]

    def get_extra_state(self) -> dict[str, Any]:
        """Genotypes and scores so far, and the batch."""
        return {
            "genotypes": [genotype.to_dict() for genotype in self.genotypes],
            "scores": {name: list(scores) for name, scores in self.scores.items()},
            "images": self.images,
        }

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned."""
        self.genotypes = [Genotype.from_dict(value) for value in state["genotypes"]]
        self.scores = {name: list(scores) for name, scores in state["scores"].items()}
        self.images = state["images"].to(self.device)

    def _keep(self, name: str, score: float) -> None:
        if math.isnan(score):
            raise RunError(f"the score {name} of genotype {len(self.genotypes)} is NaN")
        self.scores[name].append(score)


def ranked(scores: Sequence[float]) -> list[int]:
    """For each score the number of scores below it: 0 for the worst, equal for equal ones."""
    return [sum(other < score for other in scores) for score in scores]
