"""Backbones: sizes by hand from the layers, widths and images that fit, weights from the seed alone, clear refusals."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
import torch
from support.commands import Command
from support.tiny import context, registry

from seu_bench.data import InputShape
from seu_bench.data.planning import StreamPlan, TaskPlan
from seu_bench.errors import RequestError
from seu_bench.models.backbone import BackboneModel
from seu_bench.models.sizes import count_parameters
from seu_bench.plugin.registry import find_named
from seu_bench.training.backbones import backbone_model
from seu_bench_kit.blocks import AlexNetShape, alexnet
from seu_bench_kit.cells import CellSpace
from seu_bench_kit.networks import GenotypeNetwork


def convolution(inputs: int, outputs: int, size: int = 3, *, bias: bool = True) -> int:
    return inputs * outputs * size**2 + (outputs if bias else 0)


def linear(inputs: int, outputs: int) -> int:
    return (inputs + 1) * outputs


def plan(channels: int, height: int, width: int, classes: tuple[int, ...] = (2, 3)) -> StreamPlan:
    tasks = tuple(TaskPlan(f"task {index}", head, 20, 4, 4) for index, head in enumerate(classes))
    return StreamPlan(channels, height, width, tasks, tuple(range(len(classes))))


def model(image: tuple[int, int, int], seed: int = 0, **options: Any) -> BackboneModel:
    """The model of a run of the protocol ``smoke``."""
    return backbone_model(context(plan(*image), "naive", options, seed=seed))


@pytest.mark.parametrize(
    ("image", "factor", "sizes", "flat"),
    [
        ((3, 32, 32), 1, (64, 128, 256, 2048), 4096), ((1, 28, 28), 1, (64, 128, 256, 2048), 2304),
        ((3, 32, 32), 0.25, (16, 32, 64, 512), 1024), ((1, 9, 17), 0.001, (1, 1, 1, 2), 2),
    ],
    ids=["32x32", "28x28", "narrow", "narrowest"],
)  # fmt: skip
def test_alexnet(image: tuple[int, int, int], factor: float, sizes: tuple[int, ...], flat: int) -> None:
    """Three convolutions that double, two linear layers, all with bias; pooling rounds odd sizes down."""
    first, second, third, features = sizes
    layers = [convolution(image[0], first), convolution(first, second), convolution(second, third)]
    layers += [linear(flat, features), linear(features, features)]
    backbone, width = registry().backbones.find("alexnet").factory.build(InputShape("image", image), factor)
    found = [sum(parameter.numel() for parameter in module.parameters()) for module in backbone]
    assert [size for size in found if size] == layers
    assert width == features
    assert backbone(torch.zeros(2, *image)).shape == (2, features)


@pytest.mark.parametrize(("factor", "hidden"), [(1, 400), (0.5, 200), (0.0001, 1)])
def test_mlp(factor: float, hidden: int) -> None:
    """Two hidden layers of one width on all pixels."""
    backbone, width = registry().backbones.find("mlp").factory.build(InputShape("image", (1, 28, 28)), factor)
    assert count_parameters(backbone) == linear(784, hidden) + linear(hidden, hidden)
    assert width == hidden
    features = backbone(torch.randn(3, 1, 28, 28))
    assert features.shape == (3, hidden) and bool((features >= 0).all())


@pytest.mark.parametrize("factor", [1, 0.25])
def test_linear(factor: float) -> None:
    """No layer of its own: its features are the pixels, channel by channel and row by row, whatever the factor."""
    backbone, width = registry().backbones.find("linear").factory.build(InputShape("image", (3, 5, 7)), factor)
    images = torch.randn(2, 3, 5, 7)
    features = backbone(images)
    assert (count_parameters(backbone), width, features.shape) == (0, 105, (2, 105))
    for channel, row, column in ((0, 0, 0), (0, 1, 0), (2, 4, 6), (1, 2, 3)):
        assert torch.equal(features[:, 35 * channel + 7 * row + column], images[:, channel, row, column])


def residual(inputs: int, outputs: int, *, shortcut: bool) -> int:
    """Parameters of a block: two convolutions without bias, each with two vectors of batch normalisation."""
    size = convolution(inputs, outputs, bias=False) + convolution(outputs, outputs, bias=False) + 4 * outputs
    return size + (inputs * outputs + 2 * outputs if shortcut else 0)


@pytest.mark.parametrize(("channels", "factor", "first"), [(3, 1, 20), (1, 1, 20), (3, 0.25, 5)])
def test_slim_resnet18(channels: int, factor: float, first: int) -> None:
    """A stem and eight blocks; three of them halve the image, double the channels, and have a shortcut of their own."""
    backbone, width = (
        registry().backbones.find("resnet18").factory.build(InputShape("image", (channels, 32, 32)), factor)
    )
    groups = [first, 2 * first, 4 * first, 8 * first]
    expected = convolution(channels, first, bias=False) + 2 * first
    expected += residual(first, first, shortcut=False)
    expected += sum(residual(group // 2, group, shortcut=True) for group in groups[1:])
    expected += sum(residual(group, group, shortcut=False) for group in groups)
    assert count_parameters(backbone) == expected
    assert width == groups[-1]
    assert backbone(torch.randn(2, channels, 32, 32)).shape == (2, width)
    weighted = [module for module in backbone.modules() if isinstance(module, torch.nn.Conv2d | torch.nn.Linear)]
    # Seventeen 3x3 convolutions and three shortcuts; the eighteenth layer is the head.
    assert len(weighted) == 17 + 3
    strides = [module.stride[0] for module in weighted if module.kernel_size == (3, 3)]
    assert strides == [1] * 5 + [2, 1, 1, 1] * 3
    if (channels, factor) == (3, 1):
        assert expected + linear(160, 100) == 1_109_240  # what is usually said of it, with a head for CIFAR-100


def test_cells_are_those_of_a_path_of_new_units() -> None:
    """Of one drawn cell, whatever torch's generator says."""
    image, genotype = InputShape("image", (3, 32, 32)), CellSpace().random_genotype(random.Random(0).randrange)
    backbone, width = find_named(registry().backbones, "cells:3", "backbone").build(image, 0.25)
    whole = GenotypeNetwork(genotype, image, 2, 3, 9, CellSpace())
    assert backbone(torch.randn(2, 3, 32, 32)).shape == (2, width) == (2, 4 * 9 * 4)
    shapes = {name: it.shape for name, it in whole.state_dict().items() if not name.startswith("head")}
    assert {name: it.shape for name, it in backbone.state_dict().items()} == shapes


@pytest.mark.parametrize("name", ["cells:2", "cells:x"])
def test_numbers_of_cells_are_checked(name: str) -> None:
    with pytest.raises(RequestError, match="no number of cells"):
        find_named(registry().backbones, name, "backbone")


@pytest.mark.parametrize(("side", "factor", "features"), [(32, 1, 256), (28, 1, 64), (32, 0.25, 64), (8, 0.25, 16)])
def test_conv4(side: int, factor: float, features: int) -> None:
    """28 pixels leave one place, as published; smaller images are pooled until one is left."""
    backbone, width = registry().backbones.find("conv4").factory.build(InputShape("image", (3, side, side)), factor)
    channels = round(64 * factor)
    assert width == features == backbone(torch.randn(2, 3, side, side)).shape[1]
    assert count_parameters(backbone) == convolution(3, channels, bias=False) + 3 * convolution(
        channels, channels, bias=False
    ) + 4 * (2 * channels)


@pytest.mark.parametrize(("channels", "factor", "first"), [(3, 1, 16), (1, 1, 16), (3, 0.25, 4)])
def test_resnet32(channels: int, factor: float, first: int) -> None:
    """A stem and fifteen blocks in three groups; no shortcut has parameters, so that there are 31 convolutions."""
    backbone, width = (
        registry().backbones.find("resnet32").factory.build(InputShape("image", (channels, 32, 32)), factor)
    )
    groups = [first, 2 * first, 4 * first]
    expected = convolution(channels, first, bias=False) + 2 * first
    expected += 5 * residual(first, first, shortcut=False)
    expected += sum(residual(group // 2, group, shortcut=True) - group**2 // 2 - 2 * group for group in groups[1:])
    expected += sum(4 * residual(group, group, shortcut=False) for group in groups[1:])
    assert count_parameters(backbone) == expected
    assert width == groups[-1]
    weighted = [module for module in backbone.modules() if isinstance(module, torch.nn.Conv2d | torch.nn.Linear)]
    assert len(weighted) == 31
    assert backbone[:-2](torch.randn(2, channels, 32, 32)).shape == (2, width, 8, 8)
    if (channels, factor) == (3, 1):
        assert expected + linear(64, 10) == 464_154  # what is usually said of it, with a head for CIFAR-10


def total(command: Command, *arguments: str) -> int:
    asked = ("--no-time", "--format", "json", "--strategy", "naive", "--benchmark", "split_cifar10")
    answer = command("cost", *asked, *arguments)
    assert (answer.status, answer.err) == (0, "")
    return int(json.loads(answer.out)["params_total"][0])


def narrow_alexnet(factor: int) -> int:
    """Parameters for five tasks of two classes of CIFAR-10 where all widths are divided by ``factor``."""
    first, second, third, width = (size // factor for size in (64, 128, 256, 2048))
    convolutions = convolution(3, first) + convolution(first, second) + convolution(second, third)
    return convolutions + linear(third * 16, width) + linear(width, width) + 5 * linear(width, 2)


def test_width(command: Command) -> None:
    """``width`` multiplies the hidden layers; without it the protocol's does, which ``width`` replaces."""
    assert total(command, "--protocol", "paper") == narrow_alexnet(1) == 12_978_314
    assert total(command, "--protocol", "smoke") == narrow_alexnet(8)
    assert total(command, "--protocol", "smoke", "-o", "width=1") == narrow_alexnet(1)
    own = "benchmark.protocols.paper.model.width=0.25"
    assert total(command, "--protocol", "paper", "-o", own) == narrow_alexnet(4)


@pytest.mark.parametrize("image", [(3, 7, 32), (1, 32, 7)], ids=str)
def test_images_that_are_too_small(image: tuple[int, int, int]) -> None:
    """Three poolings leave nothing of fewer than eight pixels: the message says so before anything is built."""
    with pytest.raises(RequestError, match=f"at least 8x8 pixels, not {image[1]}x{image[2]}") as error:
        model(image)
    assert "stream.input.pad" in str(error.value.remedy)
    assert model(image, backbone="mlp", width=0.1).eval()(torch.zeros(2, *image), 0).shape == (2, 2)


def test_alexnet_of_the_paper() -> None:
    """The published numbers of parameters of each layer, and of the network."""
    shape = AlexNetShape.of(3, 32, 32)
    sizes = [sum(parameter.numel() for parameter in module.parameters()) for module in alexnet(shape)]
    assert [size for size in sizes if size] == [1792, 73_856, 295_168, 8_390_656, 4_196_352]
    assert [module.p for module in alexnet(shape) if isinstance(module, torch.nn.Dropout)] == [0.2, 0.2, 0.5, 0.5, 0.5]
