"""Weights that must not move while others of the same tensor train."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Held:
    """Holds a part of some weights where it is, whatever an optimiser with momentum and weight decay does to them.

    Args:
        weights: which an optimiser steps as a whole.
        moving: bool, of each one's shape: what may move.

    Example:
        ::

            held.drop_gradients()
            optimizer.step()
            held.put_back()
    """

    def __init__(self, weights: Sequence[nn.Parameter], moving: Sequence[Tensor]) -> None:
        pairs = zip(weights, moving, strict=True)
        self.parts = [(weight, ~part, weight.detach().clone()) for weight, part in pairs if not bool(part.all())]

    def drop_gradients(self) -> None:
        """Set their gradients to 0, so that the norm by which gradients are clipped is that of what moves."""
        for weight, still, _ in self.parts:
            if weight.grad is not None:
                weight.grad.masked_fill_(still, 0)

    def put_back(self) -> None:
        """Write the values that they had when this was made."""
        with torch.no_grad():
            for weight, still, value in self.parts:
                weight.copy_(torch.where(still, value, weight))
