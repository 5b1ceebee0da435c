"""Synaptic intelligence (F. Zenke, B. Poole, S. Ganguli, "Continual Learning Through Synaptic Intelligence", 2017)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from seu_bench.config import LEARNING_RATES, TuningGrid
from seu_bench.training import TaskData
from seu_bench_methods.anchored import Anchored, PenaltyOptions

#: Largest importance of a weight.
LARGEST: Final = 0.001


class Si(Anchored):
    """Synaptic intelligence: weights whose path lowered the loss are held (Zenke et al. 2017).

    The loss of a batch is ``cross-entropy + si_lambda/2 * sum_i O_i (theta_i - theta*_i)^2``, where ``O_i`` sums
    ``w_i / (D_i^2 + eps)`` over the tasks so far, up to 0.001: ``w_i`` is what the weight's steps contributed to a
    lower loss, minus gradient times step, and ``D_i`` how far it came within the task (equations 3 to 5). Weights of
    normalisation are left free (D. Maltoni & V. Lomonaco, "Continuous Learning in Single-Incremental-Task Scenarios",
    2019, from which the limit is, too).
    """

    name = "si"
    title = "SI"
    citation = "seu_bench_kit:zenke2017continual"

    class Options(PenaltyOptions):
        """Options of synaptic intelligence."""

        strength = "si_lambda"
        tuning_grid: ClassVar[TuningGrid] = {
            "si_lambda": (100.0, 1_000.0, 10_000.0, 100_000.0),
            "learning_rate": LEARNING_RATES,
        }

        si_lambda: NonNegativeFloat = Field(1.0, description="weight of the penalty (importances are .001 at most)")
        eps: PositiveFloat = Field(0.1, description="damping of the importances")

    options: Options

    def setup(self) -> None:
        """Begin with nothing that matters."""
        self.anchor: dict[str, Tensor] = {}
        self.path: dict[str, Tensor] = {}
        self.sums, self.limited = self.zeros(), self.zeros()

    @property
    def strength(self) -> float:
        """Half of ``si_lambda``."""
        return self.options.si_lambda / 2

    @property
    def importances(self) -> Mapping[str, Tensor]:
        """The sums over tasks, up to their limit."""
        return self.limited

    def weights(self) -> dict[str, nn.Parameter]:
        """Return all weights that train but those of normalisation."""
        norms = [module for module in self.model.modules() if isinstance(module, _NormBase)]
        free = {weight for norm in norms for weight in norm.parameters()}
        return {name: weight for name, weight in super().weights().items() if weight not in free}

    def before_task(self, task: TaskData) -> None:
        """Begin a path at the present weights."""
        self.anchor, self.path = self.copy_weights(), self.zeros()

    def optimizer_step(self) -> None:
        """Add the step to the path, with the gradient that it followed."""
        before = self.copy_weights()
        super().optimizer_step()
        for name, weight in self.weights().items():
            if weight.grad is not None:
                self.path[name] -= weight.grad * (weight.detach() - before[name])

    def after_task(self, task: TaskData) -> None:
        """Add what the task's path says to the sums; anchor the weights."""
        weights = self.copy_weights()
        for name, weight in weights.items():
            self.sums[name] += self.path[name] / ((weight - self.anchor[name]).square() + self.options.eps)
        self.limited = {name: total.clamp(max=LARGEST) for name, total in self.sums.items()}
        self.anchor, self.path = weights, {}
