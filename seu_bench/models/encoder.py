"""Networks with pretrained weights that make features of images: what they are, and how methods reach their layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from seu_bench.models.modes import freeze


@dataclass(frozen=True)
class EncoderInfo:
    """Description of a pretrained network, known without building it.

    Attributes:
        name: what benchmarks call it (``[stream.input] encoder``).
        network: name of its architecture.
        sha256: 16 digits of the SHA-256 of the file of its weights.
        pretrained_on: data that the weights were trained on.
        licence: of the weights, as their source states it.
        source: where the weights come from.
        mean, std: ``[3]``, by which pixels in [0, 1] are normalised.
        size: height and width of the images that it was trained on, in pixels.
        widths: channels of the output of each layer, in order.
    """

    name: str
    network: str
    sha256: str
    pretrained_on: str
    licence: str
    source: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    size: int
    widths: tuple[int, ...]

    def document(self) -> dict[str, Any]:
        """Return plain values that say all of it."""
        return asdict(self)


class Encoder(nn.Module):
    """A pretrained network as a chain of layers, without its head, in evaluation mode and frozen.

    Args:
        info: its description.
        layers: each takes the output of the one before it; the first one takes images ``[N, 3, H, W]``.
        pool: output of a layer, such as maps ``[N, C, h, w]`` or tokens ``[N, L, C]`` -> features ``[N, C]``.

    Example:
        >>> encoder(images).shape  # [N, F]
        >>> encoder.readings(images).shape  # [N, sum(encoder.info.widths)]
    """

    def __init__(self, info: EncoderInfo, layers: Sequence[nn.Module], pool: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.info, self.pool = info, pool
        self.layers = nn.ModuleList(layers)
        freeze(self)
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        """Features ``[N, F]``: the last layer's output, pooled."""
        for layer in self.layers:
            images = layer(images)
        return self.pool(images)

    def readings(self, images: Tensor) -> Tensor:
        """The pooled output of every layer, joined: ``[N, sum(info.widths)]``."""
        found = []
        for layer in self.layers:
            images = layer(images)
            found.append(self.pool(images))
        return torch.cat(found, dim=1)
