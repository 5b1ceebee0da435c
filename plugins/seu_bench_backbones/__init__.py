"""Backbones: the paper's AlexNet variant, a perceptron, a slim ResNet-18, and none at all. Light to import."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seu_bench import hookimpl

if TYPE_CHECKING:
    from torch import nn

    from seu_bench.plugin import Register
    from seu_bench.training import BackboneFactory


@dataclass
class Backbone:
    """A backbone by its summary and the function that makes it."""

    summary: str
    make: Callable[[int, int, int, float], tuple[nn.Module, int]]

    def build(self, channels: int, height: int, width: int, factor: float) -> tuple[nn.Module, int]:
        """The network, and the width of its features."""
        return self.make(channels, height, width, factor)


def _alexnet(channels: int, height: int, width: int, factor: float) -> tuple[nn.Module, int]:
    from seu_bench.models.alexnet import AlexNetShape, alexnet

    shape = AlexNetShape.of(channels, height, width, factor)
    return alexnet(shape), shape.linear


def _mlp(channels: int, height: int, width: int, factor: float) -> tuple[nn.Module, int]:
    from seu_bench_backbones.mlp import mlp

    return mlp(channels * height * width, factor)


def _resnet18(channels: int, _height: int, _width: int, factor: float) -> tuple[nn.Module, int]:
    from seu_bench_backbones.resnet import slim_resnet18

    return slim_resnet18(channels, factor)


def _linear(channels: int, height: int, width: int, _factor: float) -> tuple[nn.Module, int]:
    # The pixels are the features, so that a strategy's linear heads are all there is. No hidden layer has a width that
    # the factor could multiply; it is not refused, because the short protocols ask every network for a narrower one.
    from torch import nn

    return nn.Flatten(), channels * height * width


@hookimpl
def register_backbones(register: Register[BackboneFactory]) -> None:
    """Offer ``alexnet``, ``linear``, ``mlp`` and ``resnet18``."""
    register("alexnet", Backbone("three convolutions, two linear layers, dropout (the paper's variant)", _alexnet))
    register("linear", Backbone("pixels straight into the heads: logistic regression (width has no effect)", _linear))
    register("mlp", Backbone("two hidden layers of 400 (van de Ven & Tolias 2019)", _mlp))
    register("resnet18", Backbone("slim ResNet-18 with batch normalisation (Lopez-Paz & Ranzato 2017)", _resnet18))
