"""Backbones read as chains of layers, and refused where they are none."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from seu_bench.errors import RequestError
from seu_bench_backbones.networks import mlp, resnet18
from seu_bench_kit import AlexNetShape, chain_of, run_chain
from seu_bench_kit.blocks import alexnet


def own(layers, x):
    """The chain with its own weights."""
    return run_chain(
        layers,
        x,
        lambda index, inputs: layers[index].compute(inputs, layers[index].weighted.weight, layers[index].weighted.bias),
    )


def test_alexnet_is_a_chain() -> None:
    shape = AlexNetShape.of(3, 16, 16, 0.05)
    network = alexnet(shape).eval()
    layers = chain_of(network, "hat")
    assert [layer.units for layer in layers] == [*shape.convolutions, shape.linear, shape.linear]
    assert [layer.inputs for layer in layers] == [3, *shape.convolutions, shape.linear]
    assert [layer.spread for layer in layers] == [1, 1, 1, 4, 1]
    x = torch.randn(5, 3, 16, 16)
    assert torch.equal(own(layers, x), network(x))


def test_mlp_is_a_chain() -> None:
    network, features = mlp(1, 4, 4, 0.02)
    layers = chain_of(network, "hat")
    assert [(layer.inputs, layer.units, layer.spread) for layer in layers] == [(16, 8, 1), (8, features, 1)]
    x = torch.randn(5, 1, 4, 4)
    assert torch.equal(own(layers, x), network(x))


def test_dropout_before_the_first_layer_is_kept() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Dropout(1.0), nn.Linear(4, 3), nn.ReLU(), nn.Dropout(0.5))
    (layer,) = chain_of(network, "hat")
    assert [type(module) for module in layer.before] == [nn.Flatten, nn.Dropout]
    assert [type(module) for module in layer.after] == [nn.ReLU, nn.Dropout]


@pytest.mark.parametrize(
    ("network", "told"),
    [
        (nn.Linear(2, 2), "Linear is no Sequential"),
        (nn.Sequential(nn.Flatten()), "does not end with a linear layer"),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()), "does not end with a linear layer"),
        (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), "it has a BatchNorm1d"),
        (nn.Sequential(nn.Conv2d(2, 2, 3, groups=2), nn.Flatten(), nn.Linear(2, 2)), "in groups"),
        (nn.Sequential(nn.Linear(2, 2), nn.Linear(3, 2)), "does not read the 2 units"),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.Linear(4, 2)), "does not read the 2 units"),
        (resnet18(3, 8, 8, 0.1)[0], "it has a BatchNorm2d"),
    ],
)
def test_others_are_refused(network: nn.Module, told: str) -> None:
    with pytest.raises(RequestError, match=told):
        chain_of(network, "hat")


def test_layers_of_other_sizes() -> None:
    layers = chain_of(alexnet(AlexNetShape.of(3, 16, 16, 0.05)), "rcl")
    made = [layer.like(2, 7) for layer in layers]
    assert [tuple(layer.weight.shape) for layer in made] == [(7, 2, 3, 3)] * 3 + [(7, 8), (7, 2)]
    assert all(layer.bias is not None for layer in made)
    assert type(made[0]) is type(layers[0].weighted)
