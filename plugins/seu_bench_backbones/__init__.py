"""Backbones: the paper's AlexNet variant, perceptrons, residual networks, a transformer, and none at all.

Light to import.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from seu_bench import hookimpl
from seu_bench.config import InputKind
from seu_bench.errors import RequestError
from seu_bench.plugin.registration import Deferred

if TYPE_CHECKING:
    from torch import nn

    from seu_bench.data import InputShape
    from seu_bench.plugin import Register
    from seu_bench.training import BackboneFactory


@dataclass
class Backbone:
    """A backbone by its summary and the function that makes it: a network and the width of its features."""

    summary: str
    build: Callable[[InputShape, float], tuple[nn.Module, int]]
    inputs: tuple[InputKind, ...] = ("image",)


@dataclass
class Cells:
    """Cells of the paper's search space, so many as the name says."""

    summary: str = "cells drawn once from the SEU paper's search space, cells:5 as many as there"
    example: str = "3"

    def select(self, name: str) -> Backbone:
        """The network of so many cells.

        Raises:
            RequestError: it is no number of cells.
        """
        if not (name.isascii() and name.isdecimal() and 3 <= int(name) <= 99):
            raise RequestError(
                f"{name!r} is no number of cells", where="backbone", remedy="at least 3, such as cells:5"
            )
        return Backbone(self.summary, partial(Deferred("seu_bench_backbones.networks:cells"), count=int(name)))

    def build(self, sample: InputShape, factor: float) -> tuple[nn.Module, int]:
        """Refuse: a number must be named."""
        raise RequestError("cells is as many networks", where="backbone", remedy="name a number, such as cells:5")


_SUMMARIES = {
    "alexnet": "three convolutions, two linear layers, dropout (the paper's variant)",
    "conv4": "four 3x3 convolutions of 64 with batch normalisation (Vinyals et al. 2016)",
    "den_mlp": "hidden layers of 312 and 128 (Yoon et al. 2018)",
    "embedding": "embeddings of tokens of 64, their mean, one hidden layer of 128",
    "hat_mlp": "two hidden layers of 2000, dropout .2 on the pixels, .5 behind each layer (Serra et al. 2018)",
    "linear": "pixels straight into the heads: logistic regression (width has no effect)",
    "mlp": "two hidden layers of 400 (van de Ven & Tolias 2019)",
    "resnet18": "slim ResNet-18 with batch normalisation (Lopez-Paz & Ranzato 2017)",
    "resnet18_even": "ResNet-18 of 64 channels throughout (Veniat et al. 2021, MNTDP)",
    "resnet32": "ResNet-32 for CIFAR with batch normalisation (He et al. 2016)",
    "simple_mlp": "one hidden layer of 512, dropout .5 (Avalanche's SimpleMLP)",
    "tanh_mlp": "one hidden layer of 200 with tanh (LwF of continual-learning-baselines)",
}
_PERCEPTRONS = ("den_mlp", "hat_mlp", "linear", "mlp", "simple_mlp", "tanh_mlp")
#: Kinds of samples that networks take; the others take images.
_INPUTS: dict[str, tuple[InputKind, ...]] = dict.fromkeys(_PERCEPTRONS, ("image", "features"))
_INPUTS["embedding"] = ("tokens",)


@hookimpl
def register_backbones(register: Register[BackboneFactory]) -> None:
    """Offer them all."""
    for name, summary in _SUMMARIES.items():
        build = Deferred(f"seu_bench_backbones.networks:{name}")
        register(name, Backbone(summary, build, _INPUTS.get(name, ("image",))))
    register("cells", Cells())
    build = Deferred("seu_bench_backbones.vision_transformer:vit_tiny")
    register("vit_tiny", Backbone("tiny vision transformer (Dosovitskiy et al. 2021; Touvron et al. 2021)", build))
