"""Progressive networks as an Avalanche strategy: a new column for each task, trained alone, then frozen."""

from __future__ import annotations

from collections.abc import Sequence

from seu_bench.backbones import AlexNetShape, width_factor
from seu_bench.interfaces import Setting, checked_options
from seu_bench.seeding import RandomState
from seu_bench.strategy import StagedStrategy, Step, TaskData
from seu_bench.training import TrainingStage
from seu_bench_pnn import PnnOptions
from seu_bench_pnn.model import ProgressiveNetwork


class Pnn(StagedStrategy):
    """A column per task, trained with the head and the laterals that belong to it."""

    model: ProgressiveNetwork

    def steps(self, task: TaskData) -> Sequence[Step]:
        """Training of a new column, which is frozen afterwards."""
        return [Step(lambda: self._training(task), lambda _: self.model.freeze())]

    def _training(self, task: TaskData) -> TrainingStage:
        with RandomState(self.seed_for("expand", task.index), self.device).active():
            self.model.expand(task.index, self.device)
        return self.training_stage(task)


def empty_network(setting: Setting) -> ProgressiveNetwork:
    """A network without columns for the setting's stream.

    Raises:
        RequestError: the stream's images are below 8x8.
    """
    options, plan = checked_options(setting, PnnOptions), setting.plan
    shape = AlexNetShape.of(plan.channels, plan.height, plan.width, width_factor(setting))
    return ProgressiveNetwork(shape, plan.classes, options.variant)


def build_pnn(setting: Setting) -> Pnn:
    """The strategy of a run."""
    return Pnn.of(setting, model=empty_network(setting))
