"""Whether what trains is in training mode: dropout drops, and batch normalisation learns its statistics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

#: Layers without parameters that compute otherwise in training.
DROPOUT = nn.modules.dropout._DropoutNd


@dataclass
class Steps:
    """Steps of optimisers on a model.

    Attributes:
        count: steps that moved parameters of the model.
        asleep: modules that were in evaluation mode in one of them, in the order in which they were found.
    """

    count: int = 0
    asleep: dict[str, None] = field(default_factory=dict)


@contextmanager
def steps_watched(strategy: Any) -> Iterator[Steps]:
    """Watch every step of every optimiser within a ``with`` block.

    Args:
        strategy: its ``model`` at the time of a step is what is looked at.
    """
    steps = Steps()

    def look(optimizer: torch.optim.Optimizer, *_: object) -> None:
        groups = (group["params"] for group in optimizer.param_groups)
        moved = {parameter for group in groups for parameter in group if parameter.grad is not None}
        if moved & set(strategy.model.parameters()):
            steps.count += 1
            steps.asleep |= dict.fromkeys(asleep(strategy.model, moved))

    handle = register_optimizer_step_pre_hook(look)
    try:
        yield steps
    finally:
        handle.remove()


def asleep(model: nn.Module, moved: set[Any]) -> Iterator[str]:
    """Yield the names of modules in evaluation mode that hold a moved parameter, or are dropout among such modules.

    Dropout belongs to the module around it that has parameters: in a network that is frozen, it stays off.
    """
    for name, module in model.named_modules():
        if any(parameter in moved for parameter in module.parameters(recurse=False)) and not module.training:
            yield name
        if any(parameter in moved for parameter in module.parameters()):
            for part, child in module.named_children():
                if isinstance(child, DROPOUT) and not child.training:
                    yield f"{name}.{part}" if name else part
