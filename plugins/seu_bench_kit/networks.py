"""Networks of units: the proxy that searches train, and the network of one genotype."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn

from seu_bench.data import InputShape
from seu_bench_kit.search_space import Sample, SearchSpace
from seu_bench_kit.units import pool


class UnitNetwork(nn.Module):
    """A stem, units one behind another, the mean over pixels, one head.

    Args:
        input: shape of a sample.
        num_classes: outputs of the head.
        cells, channels: the network's size.
        space: what makes stem and places.
        make: makes the unit of a place.
    """

    def __init__(
        self,
        input: InputShape,
        num_classes: int,
        cells: int,
        channels: int,
        space: SearchSpace,
        make: Callable[[Any], nn.Module],
    ) -> None:
        super().__init__()
        places = space.places(cells, channels)
        self.stem = space.stem(input, channels)
        self.cells = nn.ModuleList(make(place) for place in places)
        self.head = nn.Linear(places[-1].output, num_classes)

    def forward(self, x: Tensor, *sample: Any) -> Tensor:
        """Logits ``[N, num_classes]`` of samples; ``sample`` is passed on to each unit."""
        older = newer = self.stem(x)
        for cell in self.cells:
            older, newer = newer, cell(older, newer, *sample)
        logits: Tensor = self.head(pool(newer))
        return logits


class ProxyNetwork(UnitNetwork):
    """The small network that a search trains, of proxy units.

    Args:
        input: shape of a sample.
        num_classes: outputs of the head.
        cells, channels: the proxy's size (4 and 16 in the paper).
        space: what the search chooses from.

    Raises:
        RequestError: the space has no proxy.

    Example:
        ``logits = ProxyNetwork(plan.input, 10, 4, 16, space)(images, space.sample_of(genotype))``
    """

    def __init__(self, input: InputShape, num_classes: int, cells: int, channels: int, space: SearchSpace) -> None:
        super().__init__(input, num_classes, cells, channels, space, space.proxy)

    def sample_function(self, sample: Sample) -> Callable[[Tensor], Tensor]:
        """The sampled network, or the mixture of all, as a function of samples ``[N, *input.shape]`` alone."""
        return lambda x: self(x, sample)


class GenotypeNetwork(UnitNetwork):
    """The network of one genotype, which is what a task model is whose units are all new, at whatever size."""

    def __init__(
        self, genotype: Any, input: InputShape, num_classes: int, cells: int, channels: int, space: SearchSpace
    ) -> None:
        super().__init__(input, num_classes, cells, channels, space, partial(space.unit, genotype))
