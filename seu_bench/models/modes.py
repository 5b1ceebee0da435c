"""Modes of a network's modules: training, evaluation, and frozen for good."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from torch import nn

from seu_bench.models.walk import parts_of

Modes: TypeAlias = tuple[list[nn.Module], list[bool]]


@contextmanager
def modes_kept(model: nn.Module) -> Iterator[None]:
    """Restore the mode of every module at the end of a ``with`` block.

    Frozen modules may refuse to train, and others stay in evaluation mode on purpose, so that ``train()`` would not
    restore what was there.
    """
    before = save_modes(model)
    try:
        yield
    finally:
        restore_modes(before)


def save_modes(model: nn.Module) -> Modes:
    """Return all modules, and their modes."""
    modules = parts_of(model)
    return modules, [it.training for it in modules]


def restore_modes(modes: Modes) -> None:
    """Restore what :func:`save_modes` returned."""
    for module, training in zip(*modes, strict=True):
        if module.training is not training:  # setting it takes ten times as long as looking
            module.training = training


def freeze(*frozen: nn.Module | nn.Parameter) -> None:
    """Stop training of modules and parameters for good, and free the gradients.

    Modes are left alone: a module with dropout or BatchNorm must refuse ``train()`` by itself.
    """
    for parameter in _parameters(frozen):
        parameter.requires_grad_(False)
        parameter.grad = None


def is_frozen(*modules: nn.Module | nn.Parameter) -> bool:
    """Return whether no parameter of ``modules`` trains any more; true where there is none."""
    return not any(parameter.requires_grad for parameter in _parameters(modules))


def _parameters(frozen: Iterable[nn.Module | nn.Parameter]) -> Iterable[nn.Parameter]:
    for each in frozen:
        yield from [each] if isinstance(each, nn.Parameter) else each.parameters()
