"""PackNet as a strategy: training, pruning and retraining per task, with the weights of earlier tasks held still."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from seu_bench.config import Schedule
from seu_bench.models import packed_bytes
from seu_bench.training import (
    Cost,
    EpochlessStage,
    Phase,
    StageCost,
    StagedStrategy,
    StrategyContext,
    TaskData,
    TrainingStage,
    build_backbone,
    checked_options,
    fixed_size_cost,
    on_meta,
)
from seu_bench.utils import RandomState, derive_seed
from seu_bench_packnet import PackNetOptions
from seu_bench_packnet.held import Held
from seu_bench_packnet.model import PackedModel
from seu_bench_packnet.pruning import largest


class PruningStage(EpochlessStage[list[Tensor]]):
    """Choose the weights that a task keeps; the result is a mask for each layer. No image is passed.

    Args:
        strategy: whose model has trained the task.
        task: 0-based index of it.
    """

    def __init__(self, strategy: PackNet, task: int) -> None:
        super().__init__("pruning", task, strategy.seed_for("pruning", task), strategy.device)
        self.model = strategy.model
        self.fraction = strategy.prune_fraction

    def result(self) -> list[Tensor]:
        """The largest of each layer's free weights."""
        chosen = zip(self.model.weights(), self.model.free(), strict=True)
        return [largest(weight, free, self.fraction) for weight, free in chosen]


class PackNet(StagedStrategy):
    """Mallya & Lazebnik, CVPR 2018: weights of earlier tasks are used and never changed, so nothing is forgotten.

    Args:
        model: of which no weight is kept yet.
        prune_fraction: share of a layer's free weights that each task leaves to later ones.
        retraining: schedule of the training after pruning.
        options: those of :class:`~seu_bench.training.strategy.StagedStrategy`.
    """

    model: PackedModel

    def __init__(self, *, model: PackedModel, prune_fraction: float, retraining: Schedule, **options: Any) -> None:
        super().__init__(model=model, **options)
        self.prune_fraction = prune_fraction
        self.retraining = retraining
        #: The weights that do not move in the present stage.
        self.held = Held((), ())

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Training of all free weights, choice of those that the task keeps, and training of these alone."""
        return [
            Phase(lambda: self._training(task)),
            Phase(lambda: PruningStage(self, task.index), self.model.pack),
            Phase(lambda: self._retraining(task), lambda _: self._finish()),
        ]

    def optimizer_step(self) -> None:
        """A step of what moves: the rest has its bits again afterwards."""
        self.held.drop_gradients()
        super().optimizer_step()
        self.held.put_back()

    def _training(self, task: TaskData) -> TrainingStage:
        self.model.begin(task.index)
        self.held = Held(self.model.weights(), self.model.free())
        return self.training_stage(task)

    def _retraining(self, task: TaskData) -> TrainingStage:
        self.model.begin(task.index)
        self.held = Held(self.model.weights(), self.model.kept(task.index, task.index))
        return TrainingStage(self, task, "retraining", self.retraining)

    def _finish(self) -> None:
        self.model.finish()
        self.held = Held((), ())


def build_packnet(context: StrategyContext) -> PackNet:
    """The strategy of a run."""
    options = checked_options(context, PackNetOptions)
    model, retraining = packed_model(context), retraining_schedule(context)
    return PackNet.of(context, model=model, prune_fraction=options.prune_fraction, retraining=retraining)


def packnet_cost(context: StrategyContext) -> Cost:
    """Exact: a network of fixed size, whose images are passed again in retraining, and a mask more with each task."""
    options, plan = checked_options(context, PackNetOptions), context.plan
    epochs, validate = retraining_schedule(context).epochs, options.restore == "best_valid"
    more = [
        StageCost("retraining", index, epochs * task.num_train, epochs * task.num_valid if validate else 0)
        for index, task in enumerate(plan.tasks)
    ]
    cost = fixed_size_cost(context, more, kept_copies=0)
    weights = on_meta(lambda: packed_model(context)).count
    memory = tuple(kept + task * packed_bytes(weights) for task, kept in enumerate(cost.memory_bytes, start=1))
    bits = tuple(task * weights for task in range(1, len(plan.tasks) + 1))
    return replace(cost, memory_bytes=memory, memory_bytes_min=memory, mask_bits=bits)


def retraining_schedule(context: StrategyContext) -> Schedule:
    """The training stage's schedule, with the epochs and the learning rate of retraining."""
    options = checked_options(context, PackNetOptions)
    training = options.applied_to(context.protocol.training)
    rate = options.retrain_rate * training.learning_rate
    return training.model_copy(
        update={
            "epochs": max(1, training.epochs // 2) if options.retrain_epochs is None else options.retrain_epochs,
            "learning_rate": rate,
            "min_learning_rate": min(rate, training.min_learning_rate),
        }
    )


def packed_model(context: StrategyContext) -> PackedModel:
    """The model of a run, its weights drawn as those of ``naive``; no task has any.

    Raises:
        RequestError: the backbone does not fit the images, or has no weights.
    """
    with RandomState(derive_seed(context.seed, "model")).active():
        return PackedModel(*build_backbone(context), context.plan.classes_per_task)
