"""Hard attention to the task as an Avalanche strategy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from seu_bench.config import Schedule
from seu_bench.errors import RequestError
from seu_bench.training import (
    Cost,
    Phase,
    StagedStrategy,
    StrategyContext,
    TaskData,
    TrainingStage,
    build_backbone,
    checked_options,
    fixed_size_cost,
)
from seu_bench.utils import RandomState, derive_seed
from seu_bench_hat import HatOptions
from seu_bench_hat.gates import LARGEST_EMBEDDING, compensated, passing, scale_of, used_anew
from seu_bench_hat.model import GatedModel


@dataclass(frozen=True)
class Protection:
    """What earlier tasks ask of the one that trains.

    Attributes:
        task: that trains.
        used: largest gates of earlier tasks, ``[units]`` for each layer.
        passing: by what the gradient of a parameter is multiplied; empty for the first task.
    """

    task: int
    used: Sequence[Tensor]
    passing: Sequence[tuple[Tensor, Tensor]]


class Hat(StagedStrategy):
    """Hard attention to the task (Serra et al., ICML 2018, section 2).

    The loss of a batch, and the validation loss that selects weights, is cross-entropy + ``hat_lambda`` times the share
    of units not used before that the task takes: in training with the gates of the batch, in validation with those of
    evaluation.

    Args:
        hat_lambda: weight of the penalty.
        options: those of :class:`~seu_bench.training.strategy.StagedStrategy`.

    Raises:
        RequestError: the schedule has weight decay.
    """

    model: GatedModel
    state_attributes = ("learned_tasks",)

    def __init__(self, *, hat_lambda: float = 0.75, **options: Any) -> None:
        super().__init__(**options)
        refuse_decay(self.schedule)
        self.hat_lambda = hat_lambda
        self.learned_tasks: tuple[int, ...] = ()
        self.protection: Protection | None = None

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Training alone, in which units of earlier tasks are protected."""
        return [Phase(lambda: self._protected_training(task), lambda _: self._learned(task.index))]

    def _protected_training(self, task: TaskData) -> TrainingStage:
        self.protection = self.protection_of(task.index)
        return self.training_stage(task)

    def _learned(self, task: int) -> None:
        self.protection = None
        if task not in self.learned_tasks:
            self.learned_tasks = (*self.learned_tasks, task)

    def protection_of(self, task: int) -> Protection:
        """What the tasks learned so far ask of the training of ``task``."""
        layers, earlier = self.model.layers, [it for it in self.learned_tasks if it != task]
        used = [torch.zeros(layer.units, device=self.device) for layer in layers]
        with torch.no_grad():
            for each in earlier:
                used = [*map(torch.maximum, used, self.model.gates(each, self.model.s_max))]
        factors: list[tuple[Tensor, Tensor]] = []
        for layer, gates, inputs in zip(layers, used, (None, *used[:-1]), strict=True):
            weight, bias = layer.weighted.weight, layer.weighted.bias
            factors.append((weight, passing(gates, inputs, weight.shape, layer.spread)))
            if bias is not None:
                factors.append((bias, 1 - gates))
        return Protection(task, used, factors if earlier else ())

    def forward(self) -> Tensor:
        """Logits of the batch, in training with the gates that it has in its epoch."""
        if self.is_training:
            self.model.scale = scale_of(self.batch_number, self.batches_per_epoch, self.model.s_max)
        return super().forward()

    def penalty(self) -> Tensor | None:
        """``hat_lambda`` times the share of free units that the task in training takes."""
        if self.protection is None or self.hat_lambda == 0:
            return None
        return self.hat_lambda * used_anew(self.model.gates(self.protection.task), self.protection.used)

    def optimizer_step(self) -> None:
        """Hold what earlier tasks use, undo the slope of the gates, clip, step, and bound the embeddings."""
        protection = self.protection
        if protection is None:
            super().optimizer_step()
            return
        for parameter, factor in protection.passing:
            if parameter.grad is not None:
                parameter.grad.mul_(factor)
        embeddings = self.model.embeddings_of(protection.task)
        for embedding in embeddings:
            if embedding.grad is not None:
                embedding.grad = compensated(embedding.grad, embedding.detach(), self.model.scale, self.model.s_max)
        super().optimizer_step()
        with torch.no_grad():
            for embedding in embeddings:
                embedding.clamp_(-LARGEST_EMBEDDING, LARGEST_EMBEDDING)


def refuse_decay(schedule: Schedule) -> None:
    """Refuse a schedule that moves weights whose gradient is 0.

    Raises:
        RequestError: it has weight decay.
    """
    if schedule.weight_decay:
        raise RequestError(
            f"hat cannot be trained with a weight decay of {schedule.weight_decay:g}: it moves what earlier tasks use",
            remedy="leave weight_decay out, or set it to 0",
        )


def gated_model(context: StrategyContext) -> GatedModel:
    """The model of a run.

    Raises:
        RequestError: the backbone is no chain of layers, or does not fit the images.
    """
    options = checked_options(context, HatOptions)
    with RandomState(derive_seed(context.seed, "model")).active():
        return GatedModel(*build_backbone(context), context.plan.classes_per_task, options.s_max)


def build_hat(context: StrategyContext) -> Hat:
    """The strategy of a run."""
    return Hat.of(context, model=gated_model(context), hat_lambda=checked_options(context, HatOptions).hat_lambda)


def hat_cost(context: StrategyContext) -> Cost:
    """Cost of naive fine-tuning, and an embedding for each task and unit; nothing is kept beside the model."""
    refuse_decay(checked_options(context, HatOptions).applied_to(context.protocol.training))
    return fixed_size_cost(context, kept_copies=0, build=lambda: gated_model(context))
