"""A network of its own for each task, all of one backbone, width and schedule: nothing is shared, nothing forgotten.

What a strategy gains by growing or by reusing what it learned shows beside this one: as many networks as tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from seu_bench.errors import RunError
from seu_bench.models import MultiHeadModel, count_parameters, freeze, is_frozen, state_bytes
from seu_bench.models.multihead import not_learned
from seu_bench.training import (
    Cost,
    Phase,
    StagedStrategy,
    StrategyContext,
    TaskData,
    TrainingStage,
    build_backbone,
    checked_options,
    evaluation_passes,
    on_meta,
    priced,
    task_flops,
    task_macs,
    training_passes,
)
from seu_bench.utils import RandomState
from seu_bench_independent import IndependentOptions

#: Makes a backbone, and says how wide its features are.
_Backbone: TypeAlias = Callable[[], tuple[nn.Module, int]]


class IndependentNetworks(MultiHeadModel):
    """A backbone with a linear head for each task, one more with each task that is learned.

    Args:
        backbone: makes a backbone with weights drawn from torch's global generator, and says the width ``F`` of its
            features: images ``[N, C, H, W]`` -> ``[N, F]``.
        classes: outputs of each task's head.
    """

    def __init__(self, backbone: _Backbone, classes: Sequence[int]) -> None:
        super().__init__(classes)
        self._backbone = backbone
        self.networks = nn.ModuleList()

    def expand(self, task: int, device: torch.device | None = None) -> None:
        """Add the network of ``task``, its weights drawn from the global generator.

        Args:
            device: where the network is put; where it was made by default.

        Raises:
            RunError: networks are added in the order of the tasks, one for each.
        """
        if task != len(self.networks):
            raise RunError(
                f"task {task} cannot get network {len(self.networks)}: each task is learned once, in the stream's "
                "order",
                remedy="train on benchmark.train_stream from its beginning, with a strategy made for it",
            )
        backbone, features = self._backbone()
        self.networks.append(nn.Sequential(backbone, nn.Linear(features, self.classes_per_task[task])).to(device))

    def freeze(self) -> None:
        """No network that exists now trains again; gradients are freed."""
        freeze(self)

    def architecture(self) -> dict[str, Any]:
        """The number of networks, and of those that are frozen."""
        frozen = sum(is_frozen(network) for network in self.networks)
        return {"networks": len(self.networks), "frozen": frozen}

    def load_architecture(self, architecture: Mapping[str, Any]) -> None:
        """Give a model without networks those of ``architecture``.

        Raises:
            ValueError: there are more networks than tasks.
        """
        networks, frozen = int(architecture["networks"]), int(architecture["frozen"])
        if not 0 <= frozen <= networks <= len(self.classes_per_task) or len(self.networks):
            raise ValueError(
                f"{networks} networks, {frozen} of them frozen, do not fit {len(self.classes_per_task)} tasks"
            )
        for task in range(networks):
            self.expand(task)
            if task == frozen - 1:
                self.freeze()

    def forward_single_task(self, x: Tensor, task_label: int) -> Tensor:
        """Logits ``[N, classes_per_task[task]]`` of the task's own network.

        Raises:
            RunError: the task was not learned yet.
        """
        logits: Tensor = self.task_module(task_label)(x)
        return logits

    def task_module(self, task: int) -> nn.Module:
        """The task's network."""
        if not 0 <= task < len(self.networks):
            raise not_learned(task, "network")
        return self.networks[task]


class Independent(StagedStrategy):
    """A new network for each task, trained alone, then frozen."""

    model: IndependentNetworks

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Training of a new network, which is frozen afterwards."""
        return [Phase(lambda: self._training(task), lambda _: self.model.freeze())]

    def _training(self, task: TaskData) -> TrainingStage:
        with RandomState(self.seed_for("expand", task.index), self.device).active():
            self.model.expand(task.index, self.device)
        return self.training_stage(task)


def empty_model(context: StrategyContext) -> IndependentNetworks:
    """A model without networks for the context's stream.

    Raises:
        RequestError: the backbone does not fit the images.
    """
    return IndependentNetworks(lambda: build_backbone(context), context.plan.classes_per_task)


def build_independent(context: StrategyContext) -> Independent:
    """The strategy of a run."""
    return Independent.of(context, model=empty_model(context))


def independent_cost(context: StrategyContext) -> Cost:
    """Exact: after each task the parameters are those of the networks so far."""
    options, plan = checked_options(context, IndependentOptions), context.plan
    model = on_meta(lambda: _whole_model(context))
    params = tuple(accumulate(count_parameters(network) for network in model.networks))
    memory = tuple(accumulate(state_bytes(network) for network in model.networks))
    macs = task_macs(model, plan, one_path=True)
    schedule = options.applied_to(context.protocol.training)
    passes = training_passes(plan, schedule, validate=options.restore == "best_valid")
    stages = (*priced(passes, task_flops(model, plan, one_path=True)), *evaluation_passes(plan))
    return Cost(params, params, macs, macs, stages, memory, memory)


def _whole_model(context: StrategyContext) -> IndependentNetworks:
    model = empty_model(context)
    for task in range(len(context.plan.tasks)):
        model.expand(task)
    return model
