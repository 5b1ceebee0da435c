"""MAS (R. Aljundi et al., "Memory Aware Synapses: Learning what (not) to forget", ECCV 2018)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import torch
from pydantic import Field, NonNegativeFloat
from torch import Tensor

from seu_bench.config import LEARNING_RATES, TuningGrid
from seu_bench.training import TaskData
from seu_bench_methods.anchored import Anchored, PenaltyOptions


class Mas(Anchored):
    """Memory-aware synapses: weights to which the outputs are sensitive are held (Aljundi et al. 2018).

    The loss of a batch is ``cross-entropy + lambda_reg * sum_i O_i (theta_i - theta*_i)^2``, where ``O`` is the mean
    over batches of the absolute gradient of the outputs' mean squared norm (equations 3 to 5), without dropout: the
    sensitivity of what was learned. Of several tasks ``O <- alpha O + (1 - alpha) O_new``.
    """

    name = "mas"
    title = "MAS"
    citation = "seu_bench_kit:aljundi2018memory"
    check_options = {"lambda_reg": 0.01}
    after_task_stage = "consolidation"

    class Options(PenaltyOptions):
        """Options of memory-aware synapses."""

        strength = "lambda_reg"
        tuning_grid: ClassVar[TuningGrid] = {"lambda_reg": (0.001, 0.01, 0.1, 1.0), "learning_rate": LEARNING_RATES}

        lambda_reg: NonNegativeFloat = Field(1.0, description="weight of the penalty")
        alpha: Annotated[float, Field(ge=0, le=1)] = Field(0.5, description="share of earlier tasks in the importances")

    options: Options

    def setup(self) -> None:
        """Begin with nothing that matters."""
        self.anchor: dict[str, Tensor] = {}
        self.sensitivity: dict[str, Tensor] = {}

    @property
    def strength(self) -> float:
        """``lambda_reg``."""
        return self.options.lambda_reg

    @property
    def importances(self) -> Mapping[str, Tensor]:
        """The sensitivity of the outputs."""
        return self.sensitivity

    def after_task(self, task: TaskData) -> None:
        """Merge the task's importances; anchor the weights."""
        weights, new, batches = self.weights(), self.zeros(), 0
        with self.measuring():
            for x, _ in self.counted(task.train, self.schedule.batch_size):
                outputs = self.model.forward_single_task(x, task.index)
                # Other tasks' heads have no part in it: their gradient is zero.
                length = outputs.norm(dim=1).square().mean()
                gradients = torch.autograd.grad(length, list(weights.values()), materialize_grads=True)
                for total, gradient in zip(new.values(), gradients, strict=True):
                    total.add_(gradient.abs())
                batches += 1
        new, share = {name: total / batches for name, total in new.items()}, self.options.alpha
        old = self.sensitivity
        self.sensitivity = {name: share * old[name] + (1 - share) * new[name] for name in new} if old else new
        self.anchor = self.copy_weights()
