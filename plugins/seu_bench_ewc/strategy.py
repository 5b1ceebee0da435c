"""Elastic weight consolidation as an Avalanche strategy: after each task a second stage estimates what matters."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from torch import Tensor

from seu_bench.training import (
    Cost,
    Phase,
    StageCost,
    StagedStrategy,
    StrategyContext,
    TaskData,
    backbone_model,
    checked_options,
    fixed_size_cost,
)
from seu_bench_ewc import Estimator, EwcOptions
from seu_bench_ewc.consolidation import Consolidation
from seu_bench_ewc.fisher import FisherStage


class Ewc(StagedStrategy):
    """Elastic weight consolidation with one anchor (Kirkpatrick et al., PNAS 2017, equation 3; published code of
    SEU's paper).

    The loss of a batch is ``cross-entropy + ewc_lambda/2 * sum_i F_i (theta_i - theta*_i)^2`` over all parameters.
    ``theta*`` are the weights after the previous task, and ``F`` is the mean of the Fisher informations of all tasks
    so far. Weights are selected by the validation loss with the same penalty.

    Args:
        ewc_lambda: strength of the penalty.
        fisher: how the Fisher information is estimated.
        options: those of :class:`~seu_bench.training.strategy.StagedStrategy`.
    """

    penalty_strength = "ewc_lambda"

    def __init__(self, *, ewc_lambda: float = 20_000.0, fisher: Estimator = "batch", **options: Any) -> None:
        super().__init__(**options)
        self.ewc_lambda = ewc_lambda
        self.estimator: Estimator = fisher
        self.consolidation = Consolidation()

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Training, then the Fisher information at the weights that training restored."""
        return [
            *super().phases(task),
            Phase(
                lambda: FisherStage(self, task, self.estimator),
                lambda estimate: self.consolidation.add(self.model, estimate),
            ),
        ]

    def get_extra_state(self) -> dict[str, Any]:
        """Fisher information and anchor."""
        return self.consolidation.state_dict()

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned."""
        self.consolidation.load_state_dict(state, self.device)

    def penalty(self) -> Tensor | None:
        """``ewc_lambda/2 * sum_i F_i (theta_i - theta*_i)^2``; nothing before the second task."""
        if self.ewc_lambda == 0:
            return None
        distance = self.consolidation.distance(self.model)
        return None if distance is None else self.ewc_lambda / 2 * distance

    def penalty_curvature(self, trained: Collection[str]) -> float | None:
        """``ewc_lambda`` times the largest Fisher information; nothing before the second task."""
        fishers = [fisher for name, fisher in self.consolidation.fisher.items() if name in trained]
        return self.ewc_lambda * max(float(fisher.max()) for fisher in fishers) if self.ewc_lambda and fishers else None


def build_ewc(context: StrategyContext) -> Ewc:
    """The strategy of a run."""
    options = checked_options(context, EwcOptions)
    return Ewc.of(context, model=backbone_model(context), ewc_lambda=options.ewc_lambda, fisher=options.fisher)


def ewc_cost(context: StrategyContext) -> Cost:
    """Cost of naive fine-tuning, and each training image once more with its gradient; importances and an anchor."""
    fisher = [StageCost("fisher", index, task.num_train, 0) for index, task in enumerate(context.plan.tasks)]
    return fixed_size_cost(context, more=fisher, kept_copies=2)
