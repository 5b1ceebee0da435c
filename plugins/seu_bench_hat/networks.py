"""The perceptron of Serra et al. (ICML 2018) for permuted MNIST."""

from __future__ import annotations

from torch import nn

from seu_bench.models import Dropout

#: Width of both hidden layers, and the dropout of the pixels and of each layer.
HIDDEN, PIXEL_DROPOUT, DROPOUT = 2000, 0.2, 0.5


def hat_mlp(channels: int, height: int, width: int, factor: float) -> tuple[nn.Module, int]:
    """A perceptron with two hidden layers and dropout.

    Args:
        channels: channels of an image.
        height: height of an image in pixels.
        width: width of an image in pixels.
        factor: multiplies the widths of the hidden layers.

    Returns:
        A module from images ``[N, channels, height, width]`` to features ``[N, F]``, and ``F``.
    """
    hidden = max(1, round(factor * HIDDEN))
    layers: list[nn.Module] = [nn.Flatten(), Dropout(PIXEL_DROPOUT)]
    for inputs in (channels * height * width, hidden):
        layers += [nn.Linear(inputs, hidden), nn.ReLU(), Dropout(DROPOUT)]
    return nn.Sequential(*layers), hidden
