"""A network of its own for each task, all of one backbone, width and schedule: nothing is shared, nothing forgotten.

What a method gains by growing or by reusing what it learned shows beside this one: as many networks as tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from seu_bench import Method
from seu_bench.config import BackboneOptions, SelectingOptions, TaskInferenceOptions
from seu_bench.errors import RunError
from seu_bench.models import MultiHeadModel, freeze, is_frozen
from seu_bench.models.multihead import not_learned
from seu_bench.results import REFERENCE_ROWS
from seu_bench.training import Phase, StrategyContext, TaskData, build_backbone
from seu_bench.utils import RandomState


class IndependentNetworks(MultiHeadModel):
    """A backbone with a linear head for each task, one more with each task that is learned.

    Args:
        backbone: makes a backbone with weights drawn from torch's global generator, and says the width ``F`` of its
            features: images ``[N, C, H, W]`` -> ``[N, F]``.
        classes: outputs of each task's head.
    """

    paths_stay = True

    def __init__(self, backbone: Callable[[], tuple[nn.Module, int]], classes: Sequence[int]) -> None:
        super().__init__(classes)
        self._backbone = backbone
        self.networks = nn.ModuleList()

    def expand(self, task: int, device: torch.device | None = None) -> None:
        """Add the network of ``task``, its weights drawn from the global generator.

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

    def architecture(self) -> dict[str, Any]:
        """The number of networks, and of those that are frozen."""
        return {"networks": len(self.networks), "frozen": sum(map(is_frozen, self.networks))}

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
        freeze(self.networks[:frozen])

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


class Independent(Method):
    """A network of its own for each task: as many networks as tasks."""

    name = "independent"
    title = "independent networks"
    scenarios = ("task",)
    reference = REFERENCE_ROWS["independent"]
    check_options = {"backbone": "mlp"}
    model: IndependentNetworks

    class Options(BackboneOptions, SelectingOptions, TaskInferenceOptions):
        """Options of a network per task."""

    @classmethod
    def make_model(cls, context: StrategyContext) -> IndependentNetworks:
        """Return a model without networks."""
        return IndependentNetworks(lambda: build_backbone(context), context.plan.classes_per_task)

    def before_task(self, task: TaskData) -> None:
        """Add the task's network."""
        with RandomState(self.seed_for("expand", task.index), self.device).active():
            self.model.expand(task.index, self.device)

    def trained_module(self, task: TaskData) -> nn.Module:
        """Return the task's network: best weights of the others need not be kept."""
        return self.model.task_module(task.index)

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Return training, after which the network is frozen."""
        return [replace(phase, apply=lambda _: freeze(self.model)) for phase in super().phases(task)]
