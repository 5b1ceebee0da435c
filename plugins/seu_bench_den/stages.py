"""The stages that learn a task, and what a step of each does besides following the gradient."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from seu_bench.models import GrowingNetwork
from seu_bench.training import EpochReport, StagedStrategy, TaskData, TrainingStage
from seu_bench_den.proximal import shrink_units, soft_threshold


@dataclass(frozen=True)
class Rule:
    """What a stage trains, and how.

    Attributes:
        masks: what trains, by parameter; ``None`` for all of one.
        sparse: weights that l1 makes zero.
        groups: incoming weights and biases of units that group sparsity makes zero.
        pulled: whether old weights are pulled to where they were.
    """

    masks: Mapping[Tensor, Tensor | None]
    sparse: tuple[Tensor, ...] = ()
    groups: tuple[tuple[Tensor, Tensor | None], ...] = ()
    pulled: bool = False

    def apply_to(self, model: nn.Module) -> None:
        """Let a model's parameters require gradients where they train."""
        for parameter in model.parameters():
            mask = self.masks.get(parameter)
            parameter.requires_grad_(parameter in self.masks and (mask is None or bool(mask.any())))

    def add_decay(self, parameters: Iterable[Tensor], strength: float) -> None:
        """Add the gradient of the l2 penalty, and leave none where nothing trains."""
        with torch.no_grad():
            for parameter in parameters:
                if parameter.grad is None:
                    continue
                parameter.grad.add_(parameter, alpha=strength)
                mask = self.masks.get(parameter)
                if mask is not None:
                    parameter.grad.mul_(mask)

    def shrink(self, l1: float, group_sparsity: float) -> None:
        """The proximal step, after the gradient's: l1 and then groups, which together are that of the sum of both."""
        for weight in self.sparse:
            soft_threshold(weight, l1)
        for weight, bias in self.groups:
            shrink_units(weight, bias, group_sparsity)


def whole(*modules: nn.Module) -> dict[Tensor, Tensor | None]:
    """All parameters of some modules, without masks."""
    return {parameter: None for module in modules for parameter in module.parameters()}


def first_rule(network: GrowingNetwork) -> Rule:
    """The first task: everything, with l1 on all weights."""
    layers = [network.layer(index) for index in range(len(network.layers))]
    weights = [weight for layer in layers for weight in layer.own.values()]
    return Rule(whole(network), sparse=(*weights, network.head(0).weight))


def selection_rule(network: GrowingNetwork, task: int) -> Rule:
    """The new head alone, with l1."""
    head = network.head(task)
    return Rule(whole(head), sparse=(head.weight,))


def expansion_rule(network: GrowingNetwork, task: int) -> Rule:
    """What the task added, with l1 and group sparsity, and its head."""
    masks, sparse, groups = whole(network.head(task)), [], []
    for index in range(len(network.layers)):
        layer, name = network.layer(index), str(task)
        for part in (layer.own, layer.across):
            if name in part:
                sparse.append(part[name])
        if name in layer.own:
            groups.append((layer.own[name], layer.biases.get(name, None)))
        masks |= dict.fromkeys(layer.blocks([task]))
    return Rule(masks, tuple(sparse), tuple(groups))


def pulled_rule(network: GrowingNetwork, task: int) -> Rule:
    """All that the task is computed by, old weights held near where they were."""
    return Rule(whole(network.task_module(task)), pulled=True)


class DenStage(TrainingStage):
    """A training of one of DEN's stages.

    Args:
        strategy: that learns.
        task: to learn.
        name: of the stage.
        epochs: ``None``: the schedule's.
        restore: ``None``: as the strategy does.

    Attributes:
        loss: mean training loss in the epoch whose weights are restored.
    """

    loss = 0.0

    def __init__(
        self,
        strategy: StagedStrategy,
        task: TaskData,
        name: str,
        epochs: int | None = None,
        restore: Literal["best_valid", "last"] | None = None,
    ) -> None:
        schedule = None if epochs is None else strategy.schedule.model_copy(update={"epochs": epochs})
        super().__init__(strategy, task, name, schedule, restore)

    def run_epoch(self) -> EpochReport:
        """One epoch of training and one pass over the validation images."""
        lowest = self.best.loss
        report = super().run_epoch()
        kept = self.best.loss < lowest or self.restores == "last" or not self.data.valid
        if kept and report.loss is not None:
            self.loss = report.loss
        return report

    def result(self) -> float:
        """Restore the best weights; the loss that they were found with."""
        super().result()
        return self.loss

    def get_extra_state(self) -> dict[str, Any]:
        """Weights, optimiser, best weights, and the loss."""
        return {**super().get_extra_state(), "loss": self.loss}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned."""
        super().set_extra_state(state)
        self.loss = state["loss"]
