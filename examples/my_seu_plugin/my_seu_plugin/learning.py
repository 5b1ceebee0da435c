"""The heavy half: imported when a run begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from my_seu_plugin import HeadsOnlyOptions, NoOptions
from seu_bench.models import BackboneModel
from seu_bench.training import (
    EpochlessStage,
    Phase,
    StagedStrategy,
    StrategyContext,
    TaskData,
    backbone_model,
    checked_options,
)
from seu_bench_kit import CreationTask, SearchTask


class HeadsOnly(StagedStrategy):
    """One training stage per task; the backbone stops learning after ``freeze_after`` tasks."""

    model: BackboneModel

    def __init__(self, *, freeze_after: int, **options: Any) -> None:
        super().__init__(**options)
        self.freeze_after = freeze_after

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Training, and what follows it."""
        return [Phase(lambda: self.training_stage(task), lambda _: self._freeze(task.index))]

    def _freeze(self, task: int) -> None:
        if task + 1 >= self.freeze_after:
            self.model.backbone.requires_grad_(False)


def build_heads_only(context: StrategyContext) -> HeadsOnly:
    """The strategy of a run."""
    options = checked_options(context, HeadsOnlyOptions)
    return HeadsOnly.of(context, model=backbone_model(context), freeze_after=options.freeze_after)


class RandomSearch(EpochlessStage[Any]):
    """Only its result counts."""

    def __init__(self, options: NoOptions, task: SearchTask) -> None:
        super().__init__("search", task.task, task.seed, task.device)
        self.space = task.space

    def result(self) -> Any:
        """Random probabilities, and the genotype that they stand for."""
        return self.space.derive([np.random.rand(options) for options in self.space.choices])


class NewestCreation(EpochlessStage[tuple[int, ...]]):
    """Its path ends in the newest unit of each layer."""

    def __init__(self, options: NoOptions, task: CreationTask) -> None:
        super().__init__("creation", task.task, task.seed, task.device)
        self.model = task.model

    def result(self) -> tuple[int, ...]:
        """The last candidate of each layer."""
        return tuple(count - 1 for count in self.model.candidates)
