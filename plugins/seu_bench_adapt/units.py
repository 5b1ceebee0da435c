"""Units that adapt outputs of layers of a pretrained network, and the network with such units in its last layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import normalize

from seu_bench.errors import RequestError
from seu_bench.models.encoder import Encoder
from seu_bench.training import StrategyContext


class Bottleneck(nn.Module):
    """``x + U ReLU(D x)`` at each place, the identity at first (N. Houlsby et al., "Parameter-Efficient Transfer
    Learning for NLP", ICML 2019).

    Args:
        channels: C of maps ``[N, C, h, w]``, or of tokens ``[N, L, C]``.
        width: channels between D and U.
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(channels, width), nn.Linear(width, channels)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Output of a layer -> the same, adapted."""
        at = 1 if x.dim() == 4 else -1
        added: Tensor = self.up(functional.relu(self.down(x.movedim(at, -1)))).movedim(-1, at)
        return x + added


#: Kinds of units, by the channels between their two layers.
UNITS: Final[Mapping[str, int]] = {"linear4": 4, "linear16": 16, "linear64": 64}


class AdaptedEncoder:
    """A pretrained network with units behind its last layers. It is no module: its weights are no part of a model.

    Args:
        encoder: the network, which stays as it is.
        adapted: number of layers that a unit may follow.
    """

    def __init__(self, encoder: Encoder, adapted: int) -> None:
        self.encoder = encoder
        self.first = len(encoder.layers) - adapted

    @classmethod
    def of(cls, context: StrategyContext, adapted: int) -> AdaptedEncoder:
        """Take the network of a run's stream; a RequestError: there is none, or it has too few layers."""
        encoder = context.encoder
        if encoder is None:
            raise RequestError(
                "the strategy learns with a pretrained network, and the stream has none",
                where="input.encoder",
                remedy="add -o benchmark.stream.input.encoder=lite0 -o benchmark.stream.input.resize=96",
            )
        if adapted > len(encoder.layers):
            what = f"{adapted} layers are to be adapted, and encoder {encoder.info.name!r} has {len(encoder.layers)}"
            raise RequestError(what, where="adapted", remedy=f"give adapted={len(encoder.layers)} at most")
        return cls(encoder.to(context.device), adapted)

    @property
    def widths(self) -> Sequence[int]:
        """Channels of the output of each layer that a unit may follow."""
        return self.encoder.info.widths[self.first :]

    def prefix(self, images: Tensor) -> tuple[Tensor, ...]:
        """Output of the first layer that a unit may follow, without one, and the pooled outputs of all before it."""
        pooled = []
        for layer in self.encoder.layers[: self.first]:
            images = layer(images)
            pooled.append(self.encoder.pool(images))
        return self.encoder.layers[self.first](images), *pooled

    def outputs(self, maps: Tensor, units: Sequence[nn.Module]) -> list[Tensor]:
        """Pooled outputs ``[N, C]`` of the layers from the first adapted one on, given its output, with a unit behind
        each."""
        found = []
        for place, unit in enumerate(units):
            maps = unit(maps if place == 0 else self.encoder.layers[self.first + place](maps))
            found.append(self.encoder.pool(maps))
        return found


#: Factor of cosines, which are logits of the head that trains adapters.
SCALE: Final = 16.0


class CosineHead(nn.Module):
    """Cosines with a vector per class, times :data:`SCALE`."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(classes, features))
        nn.init.kaiming_uniform_(self.weight)

    def forward(self, features: Tensor) -> Tensor:
        """Logits ``[N, classes]`` of features ``[N, F]``."""
        return SCALE * normalize(features) @ normalize(self.weight).T


def spread(logits: Tensor, labels: Sequence[int], outputs: int) -> Tensor:
    """Logits ``[N, outputs]`` with those of ``labels`` at their places, and the lowest number elsewhere."""
    every = logits.new_full((len(logits), outputs), torch.finfo(logits.dtype).min)
    return every.index_copy(1, torch.tensor(labels).to(logits.device, non_blocking=True), logits)
