"""Modes of a network's modules: training, evaluation, and frozen for good."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def modes_kept(model: nn.Module) -> Iterator[None]:
    """Restore the mode of every module at the end of a ``with`` block.

    Frozen modules may refuse to train, and others stay in evaluation mode on purpose, so that ``train()`` would not
    restore what was there.
    """
    before = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, training in before:
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
