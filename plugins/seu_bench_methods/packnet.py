"""PackNet (A. Mallya, S. Lazebnik, "PackNet: Adding Multiple Tasks to a Single Network by Iterative Pruning", CVPR
2018)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import reduce
from typing import Annotated, Any, ClassVar, Self

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.func import functional_call

from seu_bench import Method
from seu_bench.config import (
    LEARNING_RATES,
    BackboneOptions,
    Schedule,
    SelectingOptions,
    TaskInferenceOptions,
    TuningGrid,
)
from seu_bench.errors import RequestError
from seu_bench.models import MultiHeadModel, freeze
from seu_bench.models.multihead import not_learned, out_of_turn
from seu_bench.training import (
    Phase,
    StrategyContext,
    TaskData,
    TrainingStage,
    build_backbone,
)
from seu_bench_kit import pack_bits, packed_bytes, unpack_bits


def kept_count(free: int, fraction: float) -> int:
    """Weights of a layer that a task keeps: ``free - round(fraction * free)``, but at least one while any is free."""
    return max(min(1, free), free - round(fraction * free))


def largest(weight: Tensor, free: Tensor, fraction: float) -> Tensor:
    """The weights that a task keeps."""
    places = free.flatten().nonzero().flatten()
    order = weight.detach().flatten()[places].abs().argsort(stable=True)
    kept = torch.zeros(weight.numel(), dtype=torch.bool, device=weight.device)
    kept[places[order[len(places) - kept_count(len(places), fraction) :]]] = True
    return kept.view(weight.shape)


class Held:
    """Holds a part of some weights where it is, whatever an optimiser with momentum and weight decay does to them.

    Args:
        weights: which an optimiser steps as a whole, after :meth:`drop_gradients` and before :meth:`put_back`.
        moving: bool, of each one's shape: what may move.
    """

    def __init__(self, weights: Sequence[nn.Parameter], moving: Sequence[Tensor]) -> None:
        pairs = zip(weights, moving, strict=True)
        self.parts = [(weight, ~part, weight.detach().clone()) for weight, part in pairs if not bool(part.all())]

    def drop_gradients(self) -> None:
        """Set their gradients to 0, so that the norm by which gradients are clipped is that of what moves."""
        for weight, still, _ in self.parts:
            if weight.grad is not None:
                weight.grad.masked_fill_(still, 0)

    def put_back(self) -> None:
        """Write the values that they had when this was made."""
        with torch.no_grad():
            for weight, still, value in self.parts:
                weight.copy_(torch.where(still, value, weight))


class PackedModel(MultiHeadModel):
    """A backbone whose weights are given to tasks one by one, and a linear head for each task.

    *Weights* are those of the backbone's convolutions and linear layers. Everything else in it, biases and
    normalisation, is the first task's. A weight that no task keeps is 0 between two tasks.

    Args:
        backbone: images ``[N, C, H, W]`` -> features ``[N, features]``.
        features: width of its output.
        classes: outputs of each task's head.

    Attributes:
        names: of the layers' weights, as parameters of the backbone.
        count: number of weights.
        masks: packed, ``[tasks learned, bytes]``: which weights each task keeps, all layers one after another.
        learning: the task that is being learned, which computes with all weights as they are; ``None``: none is.
        shared_frozen: whether what is no weight belongs to the first task for good.

    Raises:
        RequestError: the backbone has no weights.
    """

    masks: Tensor

    def __init__(self, backbone: nn.Module, features: int, classes: Sequence[int]) -> None:
        super().__init__(classes)
        self.backbone = backbone
        self.heads = nn.ModuleList(nn.Linear(features, width) for width in classes)
        weighted = (nn.Conv2d, nn.Linear)
        layers = {f"{name}.weight" for name, module in backbone.named_modules() if isinstance(module, weighted)}
        # In the order of the parameters, and each that layers share once.
        self.names = tuple(name for name, _ in backbone.named_parameters() if name in layers)
        if not self.names:
            raise RequestError(
                "packnet gives weights of the backbone to tasks, and this one has no convolution and no linear layer",
                remedy="choose another one, e.g. -o backbone=mlp",
            )
        self.learning: int | None = None
        self.shared_frozen = False
        self.count = sum(weight.numel() for weight in self.weights())
        self.register_buffer("masks", torch.zeros((0, packed_bytes(self.count)), dtype=torch.uint8))

    def weights(self) -> list[nn.Parameter]:
        """The weights, by layer."""
        parameters = dict(self.backbone.named_parameters())
        return [parameters[name] for name in self.names]

    def kept_weights(self, first: int, last: int) -> list[Tensor]:
        """The weights that some tasks keep, together."""
        packed = reduce(torch.bitwise_or, self.masks[first : last + 1], self.masks.new_zeros(self.masks.shape[1]))
        shapes = [weight.shape for weight in self.weights()]
        parts = unpack_bits(packed, (self.count,)).split([shape.numel() for shape in shapes])
        return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

    def free(self) -> list[Tensor]:
        """The weights that no task keeps; bool, of each layer's shape."""
        return [~taken for taken in self.kept_weights(0, len(self.masks) - 1)]

    def begin(self, task: int) -> None:
        """Compute ``task`` with all weights as they are, until :meth:`finish`.

        Raises:
            RunError: it is neither the next task nor the last one that was packed.
        """
        if task not in (len(self.masks) - 1, len(self.masks)):
            raise out_of_turn(task, len(self.masks))
        self.learning = task

    def pack(self, kept: Sequence[Tensor]) -> None:
        """Give weights to the task that is being learned, and set those that are still free to 0."""
        self._set_masks(torch.cat([self.masks, pack_bits(torch.cat([mask.flatten() for mask in kept]))[None]]))
        with torch.no_grad():
            for weight, free in zip(self.weights(), self.free(), strict=True):
                weight.masked_fill_(free, 0)

    def finish(self) -> None:
        """The task is learned: from now on it computes with its mask. What is no weight never changes again."""
        self.learning = None
        self._freeze_shared()

    def train(self, mode: bool = True) -> Self:
        """Switch modes; what has running statistics stays in evaluation mode after the first task."""
        super().train(mode)
        for module in self.backbone.modules() if self.shared_frozen else ():
            if getattr(module, "track_running_stats", False):
                module.eval()
        return self

    def forward_single_task(self, x: Tensor, task_label: int) -> Tensor:
        """Logits ``[N, classes_per_task[task]]``, by the weights that tasks up to this one keep.

        Raises:
            RunError: the task was not learned yet.
        """
        if task_label == self.learning:
            features = self.backbone(x)
        elif 0 <= task_label < len(self.masks):
            features = functional_call(self.backbone, self.masked_weights(task_label), (x,))
        else:
            raise not_learned(task_label, "weights")
        logits: Tensor = self.heads[task_label](features)
        return logits

    def masked_weights(self, task: int) -> dict[str, Tensor]:
        """The weights that a learned task computes with, by name: others are 0."""
        chosen = zip(self.names, self.weights(), self.kept_weights(0, task), strict=True)
        return {name: torch.where(kept, weight, 0.0) for name, weight, kept in chosen}

    def task_module(self, task: int) -> nn.Module:
        """The backbone, whatever the masks take of it, and the task's head."""
        return nn.ModuleList([self.backbone, self.heads[task]])

    def alone(self, task: int) -> PackedModel:
        """A copy whose other weights are 0, which computes the task without masks."""
        copied = deepcopy(self)
        with torch.no_grad():
            for weight, masked in zip(copied.weights(), self.masked_weights(task).values(), strict=True):
                weight.copy_(masked)
        copied.learning = task
        return copied

    def architecture(self) -> dict[str, Any]:
        """The number of masks, and whether what is no weight is frozen."""
        return {"masks": len(self.masks), "shared_frozen": self.shared_frozen}

    def load_architecture(self, architecture: Mapping[str, Any]) -> None:
        """Give a model without masks room for those of ``architecture``.

        Raises:
            ValueError: there are more masks than tasks, or this model has some.
        """
        masks = int(architecture["masks"])
        if not 0 <= masks <= len(self.classes_per_task) or len(self.masks):
            raise ValueError(f"{masks} masks do not fit {len(self.classes_per_task)} tasks")
        self._set_masks(self.masks.new_zeros((masks, self.masks.shape[1])))
        if architecture["shared_frozen"]:
            self._freeze_shared()

    def packed_masks(self) -> Sequence[Tensor]:
        """A bit for each weight and task."""
        return (self.masks,)

    def _freeze_shared(self) -> None:
        self.shared_frozen = True
        named = self.backbone.named_parameters()
        freeze(*(parameter for name, parameter in named if name not in self.names))
        self.train(self.training)

    def _set_masks(self, masks: Tensor) -> None:
        self.masks = masks
        self.mask_bits = len(masks) * self.count


class PackNet(Method):
    """PackNet: a task keeps its largest weights and leaves the others to later tasks (Mallya & Lazebnik 2018).

    Weights of earlier tasks are used and never changed, so nothing is forgotten.
    """

    name = "packnet"
    scenarios = ("task",)

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
            return training.model_copy(
                update={
                    "epochs": self.retrain_epochs or max(1, training.epochs // 2),
                    "learning_rate": rate,
                    "min_learning_rate": min(rate, training.min_learning_rate),
                }
            )

    options: Options
    model: PackedModel

    @classmethod
    def make_model(cls, context: StrategyContext) -> PackedModel:
        """The backbone as that of ``naive``; no task has any of its weights."""
        return PackedModel(*build_backbone(context), context.plan.classes_per_task)

    def setup(self) -> None:
        """Begin with weights that all move."""
        self._held = Held((), ())

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Training of all free weights, choice of those that the task keeps, and training of these alone."""
        return [
            Phase(lambda: self._pruned_stage(task)),
            self.step("pruning", task, self._prune),
            Phase(lambda: self._retraining_stage(task), lambda _: self._finish()),
        ]

    def optimizer_step(self) -> None:
        """A step of what moves: the rest has its bits again afterwards."""
        self._held.drop_gradients()
        super().optimizer_step()
        self._held.put_back()

    def _pruned_stage(self, task: TaskData) -> TrainingStage:
        self.model.begin(task.index)
        self._held = Held(self.model.weights(), self.model.free())
        return self.training_stage(task)

    def _retraining_stage(self, task: TaskData) -> TrainingStage:
        self.model.begin(task.index)
        self._held = Held(self.model.weights(), self.model.kept_weights(task.index, task.index))
        return TrainingStage(self, task, "retraining", self.options.retraining_schedule(self.schedule))

    def _prune(self, _task: TaskData) -> None:
        fraction, pairs = self.options.prune_fraction, zip(self.model.weights(), self.model.free(), strict=True)
        self.model.pack([largest(weight, free, fraction) for weight, free in pairs])

    def _finish(self) -> None:
        self.model.finish()
        self._held = Held((), ())
