"""Learn to Grow as a strategy: search and training per task, old weights frozen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seu_bench.config import Schedule
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
from seu_bench.utils import RandomState, derive_seed
from seu_bench_ltg import LtgOptions
from seu_bench_ltg.mixture import Mixture
from seu_bench_ltg.model import GrowingAlexNet
from seu_bench_ltg.search import SearchSettings, StructureSearch


class LearnToGrow(StagedStrategy):
    """Li et al., ICML 2019: earlier tasks' units and adapters never change, so nothing is forgotten.

    Args:
        model: without units.
        search: how to search.
        options: those of :class:`~seu_bench.training.strategy.StagedStrategy`.
    """

    model: GrowingAlexNet

    def __init__(self, *, model: GrowingAlexNet, search: SearchSettings, **options: Any) -> None:
        super().__init__(model=model, **options)
        self.search = search

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Training alone for the first task, which has nothing to choose from; then search and training."""
        if not self.model.paths:
            return [Phase(lambda: self._first_training(task), lambda _: self.model.freeze())]
        return [
            Phase(lambda: self.search_stage(task), lambda found: self.model.grow(task.index, found)),
            Phase(lambda: self.training_stage(task), lambda _: self.model.freeze()),
        ]

    def _first_training(self, task: TaskData) -> TrainingStage:
        with RandomState(self.seed_for("expand", task.index), self.device).active():
            self.model.grow_anew(task.index)
        return self.training_stage(task)

    def search_stage(self, task: TaskData) -> StructureSearch:
        """The stage that finds the task's structure."""
        with RandomState(self.seed_for("expand", task.index), self.device).active():
            mixture = Mixture(self.model, task.index)
        seed = self.seed_for("search", task.index)
        return StructureSearch(self.model, mixture, task, self.search, seed, self.device, self.eval_mb_size)

    def describe(self) -> dict[str, Any]:
        """Paths and choices per learned task, and the task that each unit was made for."""
        learned = sorted(self.model.paths)
        layers = [self.model.layer(index) for index in range(len(self.model.layers))]
        return {
            "paths": tuple(tuple(stop.unit for stop in self.model.paths[task]) for task in learned),
            "choices": tuple(tuple(str(choice) for choice in self.model.choices[task]) for task in learned),
            "unit_tasks": tuple(tuple(layer.unit_tasks) for layer in layers),
        }


def build_ltg(context: StrategyContext) -> LearnToGrow:
    """The strategy of a run."""
    options = checked_options(context, LtgOptions)
    search = SearchSettings(
        schedule=search_schedule(context),
        size_penalty=options.size_penalty,
        arch_learning_rate=options.arch_learning_rate,
        arch_weight_decay=options.arch_weight_decay,
        cosine=options.lr_schedule == "cosine",
        select=options.restore == "best_valid",
    )
    return LearnToGrow.of(context, model=growing_alexnet(context), search=search)


def search_schedule(context: StrategyContext) -> Schedule:
    """The training stage's schedule, with the search's own epochs and weight decay."""
    options = checked_options(context, LtgOptions)
    training = options.applied_to(context.protocol.training)
    epochs = training.epochs if options.search_epochs is None else options.search_epochs
    return training.model_copy(update={"epochs": epochs, "weight_decay": options.search_weight_decay})


def growing_alexnet(context: StrategyContext) -> GrowingAlexNet:
    """The model of a run: heads, and no units yet.

    Raises:
        RequestError: the images are too small.
    """
    options, plan = checked_options(context, LtgOptions), context.plan
    shape = AlexNetShape.of(plan.channels, plan.height, plan.width, width_factor(context), dropout_factor(context))
    with RandomState(derive_seed(context.seed, "model")).active():
        return GrowingAlexNet(shape, plan.classes_per_task, options.adapter)
