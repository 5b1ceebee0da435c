"""The AlexNet variant that the paper's fixed-size strategies use (after Serra et al., ICML 2018)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from seu_bench.errors import RequestError
from seu_bench.multihead import BackboneModel

#: Width of the last hidden layer.
FEATURES = 2048


def alexnet(image_channels: int, height: int, width: int) -> nn.Sequential:
    """Three 3x3 convolutions with pooling, two layers of 2048: ``[N, C, H, W] -> [N, 2048]``.

    Raises:
        RequestError: images below 8x8 have nothing left after three poolings.
    """
    if min(height, width) < 8:
        raise RequestError(
            f"the AlexNet variant needs images of at least 8x8 pixels, not {height}x{width}",
            remedy="pad the images (stream.input.pad) or choose another strategy",
        )
    flat = 256 * (height // 8) * (width // 8)
    layers: list[nn.Module] = []
    inputs = image_channels
    for outputs, dropout in ((64, 0.2), (128, 0.2), (256, 0.5)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.Dropout(dropout), nn.MaxPool2d(2)]
        inputs = outputs
    layers.append(nn.Flatten())
    for outputs in (FEATURES, FEATURES):
        layers += [nn.Linear(flat, outputs), nn.ReLU(), nn.Dropout(0.5)]
        flat = outputs
    return nn.Sequential(*layers)


def alexnet_model(image_channels: int, height: int, width: int, classes: Sequence[int]) -> BackboneModel:
    """The AlexNet variant with one head per task."""
    return BackboneModel(alexnet(image_channels, height, width), FEATURES, classes)
