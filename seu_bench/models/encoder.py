"""Networks with pretrained weights that make features of images: what they are, and how methods reach their layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from seu_bench.data.encoding import EncoderInfo
from seu_bench.models.modes import freeze

__all__ = ["Encoder", "EncoderInfo"]


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
