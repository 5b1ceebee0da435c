"""Reinforced continual learning as a strategy: a search of units for each task but the first, old weights frozen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from seu_bench.config import Schedule
from seu_bench.errors import RunError
from seu_bench.models import GrowingNetwork, chain_of
from seu_bench.training import (
    Phase,
    StagedStrategy,
    StrategyContext,
    TaskData,
    TrainingStage,
    build_backbone,
    checked_options,
)
from seu_bench.utils import RandomState, derive_seed
from seu_bench_rcl import RclOptions
from seu_bench_rcl.search import Growth, GrowthSearch, SearchSettings


class ReinforcedGrowth(StagedStrategy):
    """Xu & Zhu, NeurIPS 2018: weights of earlier tasks never change, so nothing is forgotten.

    Args:
        model: without units.
        search: how to search.
        finish: whether the best trial's weights are kept, or trained on.
        options: those of :class:`~seu_bench.training.strategy.StagedStrategy`.
    """

    model: GrowingNetwork

    def __init__(
        self,
        *,
        model: GrowingNetwork,
        search: SearchSettings,
        finish: Literal["keep", "train"] = "keep",
        **options: Any,
    ) -> None:
        super().__init__(model=model, **options)
        self.search = search
        self.finish = finish

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Training of the first network for the first task; then a search, and training if it is asked for."""
        if task.index == 0:
            return [Phase(lambda: self._first_training(task), lambda _: self.model.freeze())]
        search = Phase(lambda: self.search_stage(task), lambda found: self.grow(task, found))
        if self.finish == "keep":
            return [search]
        return [search, Phase(lambda: self.training_stage(task), lambda _: self.model.freeze())]

    def _first_training(self, task: TaskData) -> TrainingStage:
        self._check_order(task)
        with RandomState(self.seed_for("grow", task.index), self.device).active():
            self.model.grow(first_units(self.model), self.device)
        return self.training_stage(task)

    def search_stage(self, task: TaskData) -> GrowthSearch:
        """The stage that finds how many units the task adds.

        Raises:
            RunError: tasks are learned in their order, each once.
        """
        self._check_order(task)
        seed = self.seed_for("search", task.index)
        return GrowthSearch(self.model, task, self.search, seed, self.device, self.eval_mb_size)

    def _check_order(self, task: TaskData) -> None:
        if task.index != len(self.model.heads):
            raise RunError(
                f"task {task.index} cannot follow {len(self.model.heads)} learned ones: each task adds to those before",
                remedy="train on benchmark.train_stream from its beginning, with a strategy made for it",
            )

    def grow(self, task: TaskData, found: Growth) -> None:
        """Add what the search found, with the weights of its trial; they are frozen unless training follows."""
        # The weights that are drawn are replaced.
        with RandomState(self.seed_for("grow", task.index), self.device).active():
            self.model.grow(found.units, self.device)
        self.model.trainable_module(task.index).load_state_dict(found.weights)
        if self.finish == "keep":
            self.model.freeze()

    def describe(self) -> dict[str, Any]:
        """The units that each learned task added to each layer."""
        tasks = range(len(self.model.heads))
        return {"choices": tuple(tuple(f"new {units}" for units in self.model.added(task)) for task in tasks)}


def build_rcl(context: StrategyContext) -> ReinforcedGrowth:
    """The strategy of a run."""
    options = checked_options(context, RclOptions)
    search = SearchSettings(
        schedule=trial_schedule(context),
        trials=options.trials,
        max_units=options.max_units,
        unit_penalty=options.unit_penalty,
        controller_learning_rate=options.controller_learning_rate,
        baseline_learning_rate=options.baseline_learning_rate,
        cosine=options.lr_schedule == "cosine",
        select=options.restore == "best_valid",
    )
    return ReinforcedGrowth.of(context, model=growing_network(context), search=search, finish=options.finish)


def trial_schedule(context: StrategyContext) -> Schedule:
    """The training stage's schedule, with the epochs of a trial."""
    options = checked_options(context, RclOptions)
    training = options.applied_to(context.protocol.training)
    epochs = training.epochs if options.trial_epochs is None else options.trial_epochs
    return training.model_copy(update={"epochs": epochs})


def growing_network(context: StrategyContext) -> GrowingNetwork:
    """The model of a run, without units and heads.

    Raises:
        RequestError: the backbone is no chain of layers, or does not fit the images.
    """
    with RandomState(derive_seed(context.seed, "model")).active():
        chain = chain_of(build_backbone(context)[0], "rcl")
    return GrowingNetwork(chain, context.plan.classes_per_task)


def first_units(model: GrowingNetwork) -> tuple[int, ...]:
    """The units of the first network: those of the backbone."""
    return tuple(layer.units for layer in model.chain)
