"""Which weights of a layer a task keeps: the largest of those that were free."""

from __future__ import annotations

import torch
from torch import Tensor


def kept_count(free: int, fraction: float) -> int:
    """Weights of a layer that a task keeps.

    Args:
        free: weights of the layer that no earlier task keeps.
        fraction: to prune, in (0, 1).

    Returns:
        ``free - round(fraction * free)``, a half rounded to the even number as Python does; but at least one while any
        is free, so that no layer of the first task is empty.

    Example:
        >>> kept_count(10, 0.75)
        2
    """
    return max(min(1, free), free - round(fraction * free))


def largest(weight: Tensor, free: Tensor, fraction: float) -> Tensor:
    """The weights that a task keeps.

    Args:
        weight: of a layer, of any shape.
        free: bool, of the same shape: those to choose from.
        fraction: of them to prune, in (0, 1).

    Returns:
        Bool, of the same shape: the :func:`kept_count` of the largest magnitude; of equal ones the last by place.
    """
    places = free.flatten().nonzero().flatten()
    order = weight.detach().flatten()[places].abs().argsort(stable=True)
    kept = torch.zeros(weight.numel(), dtype=torch.bool, device=weight.device)
    kept[places[order[len(places) - kept_count(len(places), fraction) :]]] = True
    return kept.view(weight.shape)
