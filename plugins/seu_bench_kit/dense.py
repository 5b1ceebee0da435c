"""Search space of linear layers, as small as a space can be: for features, tokens, and images as rows of pixels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from seu_bench.data import InputShape
from seu_bench_kit.search_space import ChoiceSpace, Chosen, Sample
from seu_bench_kit.units import Unit, blend

#: Features between two layers, as a multiple of the initial channels.
MULTIPLIER: Final = 8
ACTIVATIONS: Final = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU}
#: Outputs of the linear layer, as a share of the features between two layers; the rest is zeros.
WIDTHS: Final = (0.25, 0.5, 1.0)


class DensePlace(NamedTuple):
    """Place of a unit: features in and out."""

    newer: int
    output: int


class DenseStem(Unit):
    """First layer: a linear layer on features or pixels, or the mean of the tokens' embeddings; to ``[N, outputs]``."""

    def __init__(self, input: InputShape, outputs: int) -> None:
        super().__init__()
        self.layer: nn.Module
        if input.kind == "tokens":
            self.layer = nn.EmbeddingBag(input.vocabulary or 0, outputs)
        else:
            self.layer = nn.Sequential(nn.Flatten(), nn.Linear(torch.Size(input.shape).numel(), outputs))

    def forward(self, x: Tensor) -> Tensor:
        """``[N, *input.shape] -> [N, outputs]``."""
        features: Tensor = self.layer(x)
        return features


class DenseUnit(Unit):
    """A linear layer of some width, BatchNorm and an activation, filled up with zeros; it takes the newer input."""

    def __init__(self, place: DensePlace, width: float, activation: str) -> None:
        super().__init__()
        outputs = _outputs(place, width)
        self.linear = nn.Linear(place.newer, outputs)
        self.norm = nn.BatchNorm1d(outputs)
        self.activation = ACTIVATIONS[activation]()
        self.zeros = place.output - outputs

    def forward(self, older: Tensor, newer: Tensor) -> Tensor:
        """``[N, newer] -> [N, output]``."""
        return functional.pad(self.activation(self.norm(self.linear(newer))), (0, self.zeros))


class ProxyDense(nn.Module):
    """All units of a place: the widest layer, of which narrower ones take the first outputs."""

    def __init__(self, place: DensePlace) -> None:
        super().__init__()
        self.linear = nn.Linear(place.newer, place.output)
        self.norm = nn.BatchNorm1d(place.output, affine=False)
        self.activations = nn.ModuleList(make() for make in ACTIVATIONS.values())
        counts = torch.tensor([_outputs(place, width) for width in WIDTHS])
        self.register_buffer("masks", (torch.arange(place.output) < counts[:, None]).float(), persistent=False)

    def forward(self, older: Tensor, newer: Tensor, sample: Sample) -> Tensor:
        """As of a unit, for one architecture or for all of them, weighted."""
        width, activation = sample
        x = self.norm(self.linear(newer))
        x = blend(activation, [partial(layer, x) for layer in self.activations])
        return x * blend(width, [partial(torch.clone, mask) for mask in cast(Tensor, self.masks)])

    def copy_to(self, unit: DenseUnit, genotype: Chosen) -> None:
        """Give a unit the weights that its genotype shares; what is affine in it alone stays as it is."""
        given = self.state_dict()
        for name, there in unit.state_dict().items():
            if name in given:
                there.copy_(given[name][: len(there)] if there.dim() else given[name])


class DenseSpace(ChoiceSpace):
    """Linear layers with BatchNorm: width and activation."""

    options: ClassVar[Mapping[str, Sequence[Any]]] = {"width": WIDTHS, "activation": tuple(ACTIVATIONS)}

    def places(self, cells: int, channels: int) -> list[DensePlace]:
        """Places of as many features each."""
        return [DensePlace(MULTIPLIER * channels, MULTIPLIER * channels)] * cells

    def stem(self, input: InputShape, channels: int) -> DenseStem:
        """A linear layer, or embeddings."""
        return DenseStem(input, MULTIPLIER * channels)

    def unit(self, genotype: Chosen, place: DensePlace) -> DenseUnit:
        """A linear layer."""
        return DenseUnit(place, genotype["width"], genotype["activation"])

    def proxy(self, place: DensePlace) -> ProxyDense:
        """All linear layers of a place."""
        return ProxyDense(place)


def _outputs(place: DensePlace, width: float) -> int:
    return max(1, round(width * place.output))
