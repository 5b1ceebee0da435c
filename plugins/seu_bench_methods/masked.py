"""One network whose weights tasks choose by binary masks: what :mod:`packnet`, :mod:`wsn` and :mod:`supsup` are of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import reduce
from typing import Annotated, Any, ClassVar, Self

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor, nn
from torch.func import functional_call

from seu_bench import Method
from seu_bench.config import BackboneOptions, Schedule, SelectingOptions, TaskInferenceOptions, TuningGrid
from seu_bench.errors import RequestError
from seu_bench.models import MultiHeadModel, freeze
from seu_bench.models.answers import path_checksum
from seu_bench.models.multihead import not_learned, out_of_turn
from seu_bench.models.walk import named_state
from seu_bench.training import Phase, StrategyContext, TaskData, TrainingStage, build_backbone
from seu_bench_kit import pack_bits, packed_bytes, unpack_bits


class Held:
    """Holds a part of some weights where it is, whatever an optimiser with momentum and weight decay does to them.

    Args:
        weights: which an optimiser steps as a whole, after :meth:`drop_gradients` and before :meth:`put_back`.
        moving: bool, of each one's shape: what may move.
    """

    def __init__(self, weights: Sequence[nn.Parameter] = (), moving: Sequence[Tensor] = ()) -> None:
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


class MaskedModel(MultiHeadModel):
    """A backbone of whose weights each task has a mask, and a linear head for each task.

    *Weights* are those of the backbone's convolutions and linear layers.

    Args:
        backbone: images ``[N, C, H, W]`` -> features ``[N, features]``.
        features: width of its output.
        classes: outputs of each task's head.

    Attributes:
        names: of the layers' weights, as parameters of the backbone.
        count: number of weights.
        masks: packed, ``[tasks learned, bytes]``: the weights of each task, all layers one after another.
        learning: the task that is being learned, which computes with :meth:`learning_weights`; ``None``: none is.

    Raises:
        RequestError: the backbone has no weights.
    """

    paths_stay = True
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
                "masks choose weights of the backbone, and this one has no convolution and no linear layer",
                remedy="choose another one, e.g. -o backbone=mlp",
            )
        self.learning: int | None = None
        self.count = sum(weight.numel() for weight in self.weights())
        self.register_buffer("masks", torch.zeros((0, packed_bytes(self.count)), dtype=torch.uint8))

    def weights(self) -> list[nn.Parameter]:
        """The weights, by layer."""
        parameters = dict(self.backbone.named_parameters())
        return [parameters[name] for name in self.names]

    def kept_weights(self, first: int, last: int) -> list[Tensor]:
        """The weights in the masks of some tasks, together; bool, of each layer's shape."""
        packed = reduce(torch.bitwise_or, self.masks[first : last + 1], self.masks.new_zeros(self.masks.shape[1]))
        shapes = [weight.shape for weight in self.weights()]
        parts = unpack_bits(packed, (self.count,)).split([shape.numel() for shape in shapes])
        return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

    def mask_of(self, task: int) -> list[Tensor]:
        """The weights that a learned task computes with; by default those of its own mask."""
        return self.kept_weights(task, task)

    def free(self) -> list[Tensor]:
        """The weights in no task's mask; bool, of each layer's shape."""
        return [~taken for taken in self.kept_weights(0, len(self.masks) - 1)]

    def begin(self, task: int) -> None:
        """Compute ``task`` as it is learned.

        Raises:
            RunError: it is neither the next task nor the last one that has a mask.
        """
        if task not in (len(self.masks) - 1, len(self.masks)):
            raise out_of_turn(task, len(self.masks))
        self.learning = task

    def pack(self, kept: Sequence[Tensor]) -> None:
        """Add the mask of the task that is being learned."""
        self._set_masks(torch.cat([self.masks, pack_bits(torch.cat([mask.flatten() for mask in kept]))[None]]))

    def forward_single_task(self, x: Tensor, task_label: int) -> Tensor:
        """Logits ``[N, classes_per_task[task]]``, by the weights of the task.

        Raises:
            RunError: the task was not learned yet.
        """
        weights = self.task_weights(task_label)
        features = functional_call(self.backbone, weights, (x,)) if weights else self.backbone(x)
        logits: Tensor = self.heads[task_label](features)
        return logits

    def task_weights(self, task: int) -> dict[str, Tensor]:
        """What a task computes with in place of the backbone's own."""
        if task == self.learning:
            return self.learning_weights()
        if not 0 <= task < len(self.masks):
            raise not_learned(task, "weights")
        return self.masked_weights(task)

    def learning_weights(self) -> dict[str, Tensor]:
        """What the task that is being learned computes with in place of the backbone's own; by default nothing."""
        return {}

    def masked_weights(self, task: int) -> dict[str, Tensor]:
        """The weights that a learned task computes with, by name: others are 0; and what else is its own."""
        chosen = zip(self.names, self.weights(), self.mask_of(task), strict=True)
        return {name: torch.where(kept, weight, 0.0) for name, weight, kept in chosen}

    def task_module(self, task: int) -> nn.Module:
        """The backbone, whatever the masks take of it, and the task's head."""
        return nn.ModuleList([self.backbone, self.heads[task]])

    def path_checksum(self, task: int) -> int:
        """As of the base, by what the task computes with in place of the backbone's own."""
        own, module = named_state(self.backbone), self.task_module(task)
        return path_checksum(module, {id(own[name]): it for name, it in self.task_weights(task).items()})

    def alone(self, task: int) -> Self:
        """A copy whose other weights are 0, which computes the task without masks."""
        copied = deepcopy(self)
        copied.backbone.load_state_dict(self.masked_weights(task), strict=False)
        copied.learning = task
        return copied

    def architecture(self) -> dict[str, Any]:
        """The number of masks."""
        return {"masks": len(self.masks)}

    def load_architecture(self, architecture: Mapping[str, Any]) -> None:
        """Give a model without masks room for those of ``architecture``.

        Raises:
            ValueError: there are more masks than tasks, or this model has some.
        """
        masks = int(architecture["masks"])
        if not 0 <= masks <= len(self.classes_per_task) or len(self.masks):
            raise ValueError(f"{masks} masks do not fit {len(self.classes_per_task)} tasks")
        self._set_masks(self.masks.new_zeros((masks, self.masks.shape[1])))

    def packed_masks(self) -> Sequence[Tensor]:
        """A bit for each weight and task."""
        return (self.masks,)

    def freeze_shared(self) -> None:
        """Freeze what is no weight, such as biases."""
        named = self.backbone.named_parameters()
        freeze(*(parameter for name, parameter in named if name not in self.names))

    def _set_masks(self, masks: Tensor) -> None:
        self.masks = masks
        self.mask_bits = len(masks) * self.count


class MaskedMethod(Method):
    """Base of methods of a :class:`MaskedModel`, some of whose weights are held while others are trained."""

    scenarios = ("task",)

    def setup(self) -> None:
        """Begin with weights that all move."""
        self._held = Held()

    def optimizer_step(self) -> None:
        """A step of what moves: the rest has its bits again afterwards."""
        self._held.drop_gradients()
        super().optimizer_step()
        self._held.put_back()


def kept_by_score(scores: Tensor, density: float) -> Tensor:
    """The ``round(density * n)`` of n scores that are the largest in magnitude, at least one; bool, of their shape."""
    kept = torch.zeros(scores.numel(), dtype=torch.bool, device=scores.device)
    kept[scores.detach().abs().flatten().topk(max(1, round(density * scores.numel())), sorted=False).indices] = True
    return kept.view(scores.shape)


class _StraightThrough(torch.autograd.Function):
    """A mask whose gradient is that of the magnitude of the scores that it was made of."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, density: float) -> Tensor:
        ctx.save_for_backward(scores)
        return kept_by_score(scores, density).to(scores.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (scores,) = ctx.saved_tensors
        return gradients[0] * scores.sign(), None


def masked_by_score(weight: Tensor, scores: Tensor, density: float) -> Tensor:
    """A layer's weight where its scores are largest, and 0 elsewhere. The gradient passes the choice straight through:
    that of a score is the product of its sign, the weight, and the gradient of the masked weight (V. Ramanujan et al.,
    "What's hidden in a randomly weighted neural network?", CVPR 2020)."""
    mask: Tensor = _StraightThrough.apply(scores, density)
    return weight * mask


def draw_scores(weights: Sequence[Tensor]) -> nn.ParameterList:
    """Scores for weights ``[outputs, inputs, ...]``, uniform up to 1 / sqrt(inputs of a unit), as torch draws weights
    (published code of both methods)."""
    scores = nn.ParameterList(torch.empty(weight.shape) for weight in weights)
    for each in scores:
        nn.init.kaiming_uniform_(each, a=math.sqrt(5))
    return scores


class ScoredModel(MaskedModel):
    """A masked network whose masks are those weights of each layer that have the largest scores.

    Statistics of normalisation are each task's own.

    Args:
        density: share of a layer's weights in a mask.

    Attributes:
        scores: of each layer's weights while a task is learned; they are the method's, and no part of the model.
        statistics: ``[tasks learned, numbers]``: all floating buffers of the backbone, one after another.
    """

    statistics: Tensor

    def __init__(self, backbone: nn.Module, features: int, classes: Sequence[int], density: float) -> None:
        super().__init__(backbone, features, classes)
        self.density = density
        self.scores: list[Tensor] = []
        self.register_buffer("statistics", torch.zeros((0, sum(it.numel() for it in self._moving().values()))))

    def begin(self, task: int) -> None:
        """As of the base, but a task is learned once."""
        if task != len(self.masks):
            raise out_of_turn(task, len(self.masks))
        super().begin(task)

    def finish(self) -> None:
        """The task is learned: it has the mask of its scores, and statistics as they are."""
        self.pack([kept_by_score(scores, self.density) for scores in self.scores])
        numbers = [buffer.flatten() for buffer in self._moving().values()]
        self.statistics = torch.cat([self.statistics, torch.cat([self.statistics.new_zeros(0), *numbers])[None]])
        self.learning, self.scores = None, []

    def learning_weights(self) -> dict[str, Tensor]:
        """The weights of the largest scores, and 0 in place of others."""
        chosen = zip(self.names, self.weights(), self.scores, strict=True) if self.scores else ()
        return {name: masked_by_score(weight, scores, self.density) for name, weight, scores in chosen}

    def masked_weights(self, task: int) -> dict[str, Tensor]:
        """The weights in the task's mask, and its statistics."""
        moving = self._moving()
        parts = self.statistics[task].split([buffer.numel() for buffer in moving.values()]) if moving else ()
        own = {name: part.view(moving[name].shape) for name, part in zip(moving, parts, strict=True)}
        return super().masked_weights(task) | own

    def load_architecture(self, architecture: Mapping[str, Any]) -> None:
        """As of the base, and for as many statistics."""
        super().load_architecture(architecture)
        self.statistics = self.statistics.new_zeros((len(self.masks), self.statistics.shape[1]))

    def _moving(self) -> dict[str, Tensor]:
        return {name: buffer for name, buffer in self.backbone.named_buffers() if buffer.is_floating_point()}


class ScoreOptions(BackboneOptions, SelectingOptions, TaskInferenceOptions):
    """Options of methods that choose weights by scores."""

    tuning_grid: ClassVar[TuningGrid] = {"density": (0.1, 0.3, 0.5), "learning_rate": (0.0003, 0.001, 0.003)}

    learning_rate: PositiveFloat | None = Field(0.001, description="learning rate of Adam, of scores and weights")
    weight_decay: NonNegativeFloat | None = Field(0.0, description="weight decay of Adam, added to the gradient")
    density: Annotated[float, Field(gt=0, le=1)] = Field(0.5, description="share of a layer's weights in a task's mask")


class ScoredMethod(MaskedMethod):
    """Base of methods that train scores of weights, by Adam, and keep the mask that they end with."""

    check_options = {"learning_rate": 0.01}
    options: ScoreOptions
    model: ScoredModel
    _scores: nn.ParameterList

    @classmethod
    def make_model(cls, context: StrategyContext) -> ScoredModel:
        """The backbone as that of ``naive``."""
        return ScoredModel(*build_backbone(context), context.plan.classes_per_task, context.options.density)

    def scores_of(self, task: TaskData) -> nn.ParameterList:
        """The scores that a task begins with."""
        raise NotImplementedError(f"{type(self).__name__} has no scores_of(task)")

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Training of scores, of weights that move, and of the head."""
        return [Phase(lambda: self._begin_scores(task), lambda _: self._finish())]

    def trained_module(self, task: TaskData) -> nn.Module:
        """The backbone, the task's head, and the scores."""
        return nn.ModuleList([self.model.trainable_module(task.index), self._scores])

    def begin_training(self, module: nn.Module, schedule: Schedule) -> None:
        """Train by Adam, as published code does."""
        super().begin_training(module, schedule)
        rate, decay = schedule.learning_rate, schedule.weight_decay
        self.optimizer = torch.optim.Adam(self._clipped, lr=rate, weight_decay=decay, fused=True)

    def _begin_scores(self, task: TaskData) -> TrainingStage:
        self.model.begin(task.index)
        self._scores = self.scores_of(task).to(self.device)
        self.model.scores = list(self._scores)
        self._held = Held(self.model.weights(), self.model.free())
        return self.training_stage(task)

    def _finish(self) -> None:
        self.model.finish()
        self.model.freeze_shared()
        self._held = Held()
        del self._scores
