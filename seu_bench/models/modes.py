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

    Args:
        model: whose modules' modes are restored.

    Example:
        ::

            with modes_kept(model):
                model.eval()
                logits = model(images)
    """
    before = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, training in before:
            module.training = training


def freeze(*frozen: nn.Module | nn.Parameter) -> None:
    """Stop training for good, and free the gradients.

    Modes are left alone: a module with dropout or BatchNorm must refuse ``train()`` by itself.

    Args:
        frozen: modules, with all their parameters, and parameters.

    Example:
        ``freeze(model.layers, model.scale)``
    """
    for parameter in _parameters(frozen):
        parameter.requires_grad_(False)
        parameter.grad = None


def is_frozen(*modules: nn.Module | nn.Parameter) -> bool:
    """Whether no parameter of ``modules`` trains any more.

    Returns:
        Whether that is so; true where there is no parameter.
    """
    return not any(parameter.requires_grad for parameter in _parameters(modules))


def _parameters(frozen: Iterable[nn.Module | nn.Parameter]) -> Iterable[nn.Parameter]:
    for each in frozen:
        yield from [each] if isinstance(each, nn.Parameter) else each.parameters()
