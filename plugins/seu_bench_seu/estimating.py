"""The stage that estimates running statistics of reused units anew, from the images of the task that reuses them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from seu_bench.models import RepeatedBatches
from seu_bench.training import EpochReport, Stage, TaskData
from seu_bench_seu.statistics import UnitStatistics
from seu_bench_seu.super_model import SuperModel


class StatisticsStage(Stage[dict[int, UnitStatistics]]):
    """One pass over a task's training images on its path; the result has the statistics of each layer whose unit is
    reused. No epoch where the path reuses nothing.

    Batches are shuffled, for a batch should look like the task. Reused units are normalised by the batch, so that each
    sees what the ones before it will give once they have the new statistics; new units are computed as creation left
    them. Nothing of the model changes.

    Args:
        model: the task has its path, and the units that it reuses are frozen.
        batch_size: images in a batch.
        seed: of the order of images.
    """

    def __init__(self, model: SuperModel, task: TaskData, batch_size: int, seed: int, device: torch.device) -> None:
        self.path = [model.unit(layer, index) for layer, index in enumerate(model.paths[task.index])]
        self.estimates = {layer: UnitStatistics(unit) for layer, unit in enumerate(self.path) if unit.frozen}
        super().__init__("statistics", task.index, 1 if self.estimates else 0, seed, device)
        self.model = model
        self.images = task.train
        self.batch_size = batch_size

    def run_epoch(self) -> EpochReport:
        """The pass; neither loss nor accuracy is measured."""
        self.model.eval()
        with torch.no_grad(), RepeatedBatches() as repeated, ExitStack() as modes:
            for layer, estimate in self.estimates.items():
                modes.enter_context(estimate.estimated_by(self.path[layer]))
            for x, y in self.images.batches(self.batch_size, shuffle=True):
                repeated.begin()
                self._compute(x)
                repeated.end(len(y))
                self.passed(len(y))
        return EpochReport()

    def result(self) -> dict[int, UnitStatistics]:
        """The statistics by layer."""
        return self.estimates

    def get_extra_state(self) -> dict[str, Any]:
        """The statistics as far as they are."""
        return {"estimates": {layer: estimate.state_dict() for layer, estimate in self.estimates.items()}}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned."""
        for layer, estimate in self.estimates.items():
            estimate.load_state_dict(state["estimates"][layer])

    def _compute(self, x: Tensor) -> None:
        """Compute the path up to its last reused unit."""
        inputs: tuple[Tensor, ...] = (x,)
        for layer, unit in enumerate(self.path[: max(self.estimates) + 1]):
            estimate = self.estimates.get(layer)
            output: Tensor = unit(*inputs) if estimate is None else estimate(unit, *inputs)
            inputs = (output, output) if layer == 0 else (inputs[-1], output)
