"""Freezing what earlier tasks were learned with."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn


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
