"""Proximal steps: what makes weights, and whole units, exactly zero (N. Parikh, S. Boyd, "Proximal Algorithms", 2014,
sections 6.5.2 and 6.5.4)."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.no_grad()
def soft_threshold(weight: Tensor, amount: float) -> None:
    """Bring each weight nearer to 0, in place: w becomes sign(w) max(|w| - amount, 0).

    Args:
        weight: of any shape.
        amount: what is taken off each magnitude; 0 changes nothing.

    Example:
        ``soft_threshold(torch.tensor([0.3, -0.1]), 0.2)``  # 0.1, and 0 exactly
    """
    weight.copy_(weight.sign() * (weight.abs() - amount).clamp(min=0.0))


@torch.no_grad()
def shrink_units(weight: Tensor, bias: Tensor | None, amount: float) -> None:
    """Bring the norm of each unit's incoming weights nearer to 0, in place: w becomes max(1 - amount / |w|, 0) w.

    A unit's group has its bias: one that is zero then computes nothing, and can be removed without a trace.

    Args:
        weight: ``[units, ...]``.
        bias: ``[units]``; ``None``: there is none.
        amount: what is taken off each norm.
    """
    squares = weight.flatten(1).square().sum(dim=1)
    norm = (squares if bias is None else squares + bias.square()).sqrt()
    factor = torch.where(norm > amount, 1 - amount / norm.clamp(min=torch.finfo(norm.dtype).tiny), 0.0)
    weight.mul_(factor.view(-1, *(1,) * (weight.dim() - 1)))
    if bias is not None:
        bias.mul_(factor)


@torch.no_grad()
def useful_units(weight: Tensor, bias: Tensor | None) -> Tensor:
    """Units with an incoming weight or a bias, bool ``[units]``."""
    useful = (weight != 0).flatten(1).any(dim=1)
    return useful if bias is None else useful | (bias != 0)
