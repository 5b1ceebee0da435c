"""Progressive networks as an Avalanche strategy: a new column for each task, trained alone, then frozen."""

from __future__ import annotations

from collections.abc import Sequence

from seu_bench.models import AlexNetShape
from seu_bench.training import (
    Phase,
    StagedStrategy,
    StrategyContext,
    TaskData,
    TrainingStage,
    checked_options,
    dropout_factor,
    width_factor,
)
from seu_bench.utils import RandomState
from seu_bench_pnn import PnnOptions
from seu_bench_pnn.model import ProgressiveNetwork


class Pnn(StagedStrategy):
    """A column per task, trained with the head and the laterals that belong to it."""

    model: ProgressiveNetwork

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Training of a new column, which is frozen afterwards."""
        return [Phase(lambda: self._training(task), lambda _: self.model.freeze())]

    def _training(self, task: TaskData) -> TrainingStage:
        with RandomState(self.seed_for("expand", task.index), self.device).active():
            self.model.expand(task.index, self.device)
        return self.training_stage(task)


def empty_network(context: StrategyContext) -> ProgressiveNetwork:
    """A network without columns for the context's stream.

    Raises:
        RequestError: the stream's images are below 8x8.
    """
    options, plan = checked_options(context, PnnOptions), context.plan
    shape = AlexNetShape.of(plan.channels, plan.height, plan.width, width_factor(context), dropout_factor(context))
    return ProgressiveNetwork(shape, plan.classes_per_task, options.variant)


def build_pnn(context: StrategyContext) -> Pnn:
    """The strategy of a run."""
    return Pnn.of(context, model=empty_network(context))
