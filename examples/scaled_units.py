"""A creator that changes units: each task takes the first one's, scaled and shifted channel by channel.

seu-bench run --plugin examples/scaled_units.py --creator scaled --protocol smoke
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from seu_bench import Register, hookimpl
from seu_bench.config import Options
from seu_bench.training import EpochlessStage
from seu_bench_kit import Adapted, CreationTask, CreatorFactory


class ScaledOptions(Options):
    """One of our own."""

    shift: bool = Field(True, description="whether channels are shifted, too")


class ScaleAndShift(nn.Module):
    """A factor per channel, and a summand or none; it begins as the unit is."""

    def __init__(self, channels: int, shift: bool) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels))
        self.shift = nn.Parameter(torch.zeros(channels)) if shift else None

    def forward(self, unit: nn.Module, *inputs: Tensor) -> Tensor:
        y: Tensor = unit(*inputs)
        shape = (-1, *[1] * (y.dim() - 2))  # of images and of features
        y = y * self.scale.view(shape)
        return y if self.shift is None else y + self.shift.view(shape)


def wrap(genotype: Mapping[str, Any], _unit: nn.Module, outputs: int) -> ScaleAndShift:
    """Make the module of a genotype."""
    return ScaleAndShift(outputs, genotype["shift"])


class ScaledCreation(EpochlessStage[tuple[Adapted, ...]]):
    """The creation of one task's path: nothing is tried, and nothing trains before the task's training."""

    def __init__(self, options: ScaledOptions, task: CreationTask) -> None:
        super().__init__("creation", task.task, task.seed, task.device)
        self.model = task.model
        self.genotype = {"shift": options.shift}

    def result(self) -> tuple[Adapted, ...]:
        """The first task's units, whose own are not adapted, and so can be."""
        return tuple(self.scaled(layer, old) for layer, old in enumerate(self.model.paths[0]))

    def scaled(self, layer: int, old: int) -> Adapted:
        module = wrap(self.genotype, self.model.unit(layer, old), self.model.outputs[layer])
        return Adapted(old, self.genotype, module.to(self.device))


@hookimpl
def register_creators(register: Register[CreatorFactory]) -> None:
    """Offer ``scaled``."""
    what, largest = "every task takes the first one's units, scaled and shifted", {"shift": True}
    factory = CreatorFactory(what, options=ScaledOptions, build=ScaledCreation, wrap=wrap, largest=largest)
    register("scaled", factory)
