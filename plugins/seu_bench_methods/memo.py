"""MEMO: memory-efficient expandable models (Zhou et al., ICLR 2023)."""

from __future__ import annotations

import copy
from typing import Any, cast

import torch
from torch import Tensor, nn

from seu_bench.data.planning import StreamPlan
from seu_bench.errors import RequestError
from seu_bench.models import freeze, is_frozen
from seu_bench.training import PassFlops, Phase, StrategyContext, TaskData, pass_flops
from seu_bench.training.rehearsal import StandIn
from seu_bench_kit import ResidualBlock
from seu_bench_methods.der import Expanding, ExpandingModel


class Memo(Expanding):
    """The last layers anew for each task, beside frozen ones, on first layers that all tasks share and train (MEMO,
    Zhou et al. 2023).

    After a task's training the weights of new classes are made as long, in the mean, as those of old ones.
    """

    name = "memo"
    title = "MEMO"
    citation = "seu_bench_kit:zhou2023model"

    @classmethod
    def make_model(cls, context: StrategyContext) -> ExpandingModel:
        """Return the chosen backbone, cut in two.

        Raises:
            RequestError: it cannot be cut.
        """
        whole = super().make_model(context)
        network, stands_in = whole.backbone[0], isinstance(whole.backbone[0], StandIn)
        parts = cut(network.network if isinstance(network, StandIn) else network, context.options.backbone)
        shared, last = stand_ins(*parts, whole.features, context.plan) if stands_in else parts
        return ExpandingModel(shared, last, whole.features, whole.classes_per_task)

    def balancing(self, task: TaskData) -> Phase:
        """Return the alignment of the classifier's weights."""
        return self.step("alignment", task, self.align)

    @torch.no_grad()
    def align(self, task: TaskData) -> None:
        """Multiply the weights of the task's new classes by the mean length of the old ones over theirs."""
        weight = cast(nn.Linear, self.model.heads[0]).weight
        lengths = weight.norm(dim=1)
        if new := self.plan.classes_per_task[task.index]:
            weight[-new:] *= lengths[:-new].mean() / lengths[-new:].mean()


def cut(network: nn.Module, name: str) -> tuple[nn.Module, nn.Module]:
    """Cut a network before its last layer with weights, or, of residual blocks, before the last that changes the size
    of its input, with which its last group begins. A RequestError: it is no sequence of layers, or nothing is left."""
    layers = list(network) if isinstance(network, nn.Sequential) else []
    # What normalises has vectors alone, and stays with the layer before it.
    weighty = [place for place, layer in enumerate(layers) if any(it.dim() > 1 for it in layer.parameters())]
    while len(weighty) > 1 and isinstance(block := layers[weighty[-1]], ResidualBlock):
        if not isinstance(block.shortcut, nn.Identity):
            break
        weighty.pop()
    if len(weighty) < 2:
        raise RequestError(
            "the backbone has no first layers that tasks could share and last ones that each could have anew",
            where=f"-o backbone={name}",
            remedy="choose one of layers in sequence, such as resnet32 or mlp, or --strategy der, which takes all",
        )
    return nn.Sequential(*layers[: weighty[-1]]), nn.Sequential(*layers[weighty[-1] :])


class LastStandIn(StandIn):
    """Stands for last layers, which pass gradients on when they are frozen: ``frozen`` operations per image."""

    def __init__(self, network: nn.Module, features: int, trained: PassFlops, frozen: PassFlops) -> None:
        super().__init__(network, features, trained)
        self.trained, self.frozen = trained, frozen

    def forward(self, images: Tensor) -> Tensor:
        """Features ``[N, F]``."""
        self.flops = self.frozen if is_frozen(self.network) else self.trained
        return super().forward(images)

    def __deepcopy__(self, memo: dict[int, Any]) -> LastStandIn:
        return LastStandIn(copy.deepcopy(self.network, memo), self.features, self.trained, self.frozen)


def stand_ins(shared: nn.Module, last: nn.Module, features: int, plan: StreamPlan) -> tuple[StandIn, StandIn]:
    """Return what stands for both parts of a network where cost is forecast."""
    whole = copy.deepcopy(nn.Sequential(shared, last)).to("meta").train()
    below = pass_flops(whole[0], plan)
    found = []
    for _ in range(2):
        both = pass_flops(whole, plan)
        found.append(PassFlops(both.train - below.train, both.evaluate - below.evaluate))
        freeze(whole[1])
    return StandIn(shared, 1, below), LastStandIn(last, features, *found)
