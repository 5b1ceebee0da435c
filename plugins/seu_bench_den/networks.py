"""The published network, and a backbone as the network that grows."""

from __future__ import annotations

from typing import Final

from torch import nn

from seu_bench.errors import RequestError
from seu_bench.models import GrowingNetwork, chain_of
from seu_bench.training import StrategyContext, build_backbone
from seu_bench.utils import RandomState, derive_seed

#: Widths of the hidden layers (published code, permuted MNIST).
HIDDEN: Final = (312, 128)


def den_mlp(channels: int, height: int, width: int, factor: float) -> tuple[nn.Module, int]:
    """A perceptron with hidden layers of 312 and 128 units.

    Args:
        channels, height, width: of an image.
        factor: multiplies the widths.

    Returns:
        The network and the number of its features.
    """
    first, second = (max(1, round(factor * units)) for units in HIDDEN)
    pixels = channels * height * width
    layers = (nn.Flatten(), nn.Linear(pixels, first), nn.ReLU(), nn.Linear(first, second), nn.ReLU())
    return nn.Sequential(*layers), second


def empty_network(context: StrategyContext) -> GrowingNetwork:
    """The network of a run, without units.

    Raises:
        RequestError: the backbone is no chain of linear layers.
    """
    with RandomState(derive_seed(context.seed, "model")).active():
        backbone, _ = build_backbone(context)
    remedy = "choose one with -o backbone=mlp or -o backbone=den_mlp"
    try:
        chain = chain_of(backbone, "den")
    except RequestError as error:
        raise RequestError(error.what, where=error.where, remedy=remedy) from error
    if not all(isinstance(layer.weighted, nn.Linear) for layer in chain):
        raise RequestError("den needs a backbone of linear layers alone: this one has convolutions", remedy=remedy)
    return GrowingNetwork(chain, context.plan.classes_per_task)


def first_units(network: GrowingNetwork) -> tuple[int, ...]:
    """Units of each layer that the first task gets: the backbone's."""
    return tuple(layer.units for layer in network.chain)
