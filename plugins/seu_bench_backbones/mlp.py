"""A perceptron with two hidden layers."""

from __future__ import annotations

from torch import nn

#: Width of both hidden layers (van de Ven & Tolias, "Three scenarios for continual learning", 2019, split MNIST).
HIDDEN = 400


def mlp(pixels: int, factor: float = 1.0) -> tuple[nn.Sequential, int]:
    """Images ``[N, C, H, W]`` with ``C*H*W = pixels`` to features ``[N, F]``, and ``F``."""
    hidden = max(1, round(factor * HIDDEN))
    layers = [nn.Flatten(), nn.Linear(pixels, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()]
    return nn.Sequential(*layers), hidden
