"""PackNet: tasks packed into one network by pruning (Mallya & Lazebnik, CVPR 2018)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn

from seu_bench.config import (
    LEARNING_RATES,
    BackboneOptions,
    Schedule,
    SelectingOptions,
    TaskInferenceOptions,
    TuningGrid,
)
from seu_bench.training import (
    Phase,
    StrategyContext,
    TaskData,
    TrainingStage,
    build_backbone,
)
from seu_bench_methods.masked import Held, MaskedMethod, MaskedModel


def kept_count(free: int, fraction: float) -> int:
    """Weights of a layer that a task keeps: ``free - round(fraction * free)``, but at least one while any is free."""
    return max(min(1, free), free - round(fraction * free))


def largest(weights: Sequence[Tensor], free: Sequence[Tensor], fraction: float) -> list[Tensor]:
    """The weights of each layer that a task keeps, of those that are free."""
    found, counts = [], torch.stack([there.sum() for there in free]).tolist()  # an accelerator is asked once
    for weight, there, count in zip(weights, free, counts, strict=True):
        order = torch.where(there, weight.detach().abs(), -1.0).flatten().argsort(stable=True)
        kept = torch.zeros(weight.numel(), dtype=torch.bool, device=weight.device)
        kept[order[len(order) - kept_count(count, fraction) :]] = True
        found.append(kept.view(weight.shape))
    return found


class PackedModel(MaskedModel):
    """A masked network whose weights are given to tasks one by one; a task computes with those of tasks up to it.

    What is no weight, biases and normalisation, is the first task's. A weight that no task keeps is 0 between two
    tasks.

    Attributes:
        shared_frozen: whether what is no weight belongs to the first task for good.
    """

    def __init__(self, backbone: nn.Module, features: int, classes: Sequence[int]) -> None:
        super().__init__(backbone, features, classes)
        self.shared_frozen = False

    def pack(self, kept: Sequence[Tensor]) -> None:
        """Give weights to the task that is being learned, and set those that are still free to 0."""
        super().pack(kept)
        with torch.no_grad():
            for weight, free in zip(self.weights(), self.free(), strict=True):
                weight.masked_fill_(free, 0)

    def finish(self) -> None:
        """The task is learned: from now on it computes with its mask. What is no weight never changes again."""
        self.learning, self.shared_frozen = None, True
        self.freeze_shared()

    def freeze_shared(self) -> None:
        """Freeze what is no weight, running statistics included."""
        super().freeze_shared()
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """Switch modes; what has running statistics stays in evaluation mode after the first task."""
        super().train(mode)
        for module in self.backbone.modules() if self.shared_frozen else ():
            if getattr(module, "track_running_stats", False):
                module.eval()
        return self

    def mask_of(self, task: int) -> list[Tensor]:
        """The weights of all tasks up to this one."""
        return self.kept_weights(0, task)

    def architecture(self) -> dict[str, Any]:
        """The number of masks, and whether what is no weight is frozen."""
        return {**super().architecture(), "shared_frozen": self.shared_frozen}

    def load_architecture(self, architecture: Mapping[str, Any]) -> None:
        """As of the base, and frozen as it was."""
        super().load_architecture(architecture)
        if architecture["shared_frozen"]:
            self.shared_frozen = True
            self.freeze_shared()


class PackNet(MaskedMethod):
    """PackNet: a task keeps its largest weights and leaves the others to later tasks (Mallya & Lazebnik 2018).

    Weights of earlier tasks are used and never changed, so nothing is forgotten.
    """

    name = "packnet"
    title = "PackNet"
    citation = "seu_bench_kit:mallya2018packnet"

    class Options(BackboneOptions, SelectingOptions, TaskInferenceOptions):
        """Options of PackNet; the schedule's are those of training, and of retraining but for its epochs and rate."""

        tuning_grid: ClassVar[TuningGrid] = {"prune_fraction": (0.5, 0.75, 0.9), "learning_rate": LEARNING_RATES}

        prune_fraction: Annotated[float, Field(gt=0, lt=1)] = Field(
            0.75,
            description="share of a layer's free weights that each task leaves to later ones; the paper tries .5 and "
            ".75",
        )
        retrain_epochs: PositiveInt | None = Field(
            None,
            description="epochs of retraining after pruning; not set: half of those of training (published code: 10 of "
            "20)",
        )
        retrain_rate: PositiveFloat = Field(
            0.1, description="first learning rate of retraining, as a multiple of that of training (published code: .1)"
        )

        def retraining_schedule(self, training: Schedule) -> Schedule:
            """The schedule of training, with the epochs and the learning rate of retraining."""
            rate = self.retrain_rate * training.learning_rate
            rates = {"learning_rate": rate, "min_learning_rate": min(rate, training.min_learning_rate)}
            return training.of_epochs(self.retrain_epochs or max(1, training.epochs // 2)).model_copy(update=rates)

    options: Options
    model: PackedModel

    @classmethod
    def make_model(cls, context: StrategyContext) -> PackedModel:
        """The backbone as that of ``naive``; no task has any of its weights."""
        return PackedModel(*build_backbone(context), context.plan.classes_per_task)

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Training of all free weights, choice of those that the task keeps, and training of these alone."""
        return [
            Phase(lambda: self._pruned_stage(task)),
            self.step("pruning", task, self._prune),
            Phase(lambda: self._retraining_stage(task), lambda _: self._finish()),
        ]

    def _pruned_stage(self, task: TaskData) -> TrainingStage:
        self.model.begin(task.index)
        self._held = Held(self.model.weights(), self.model.free())
        return self.training_stage(task)

    def _retraining_stage(self, task: TaskData) -> TrainingStage:
        self.model.begin(task.index)
        self._held = Held(self.model.weights(), self.model.kept_weights(task.index, task.index))
        return TrainingStage(self, task, "retraining", self.options.retraining_schedule(self.schedule))

    def _prune(self, _task: TaskData) -> None:
        self.model.pack(largest(self.model.weights(), self.model.free(), self.options.prune_fraction))

    def _finish(self) -> None:
        self.model.finish()
        self._held = Held()
