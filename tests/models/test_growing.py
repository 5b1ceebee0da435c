"""Networks that grow by units: sizes by closed form, and earlier tasks that keep their bits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from seu_bench.data import InputShape
from seu_bench.errors import RequestError
from seu_bench.models import count_parameters, freeze, is_frozen
from seu_bench_backbones.networks import mlp, resnet18
from seu_bench_kit import AlexNetShape, GrowingNetwork, chain_of, pack_bits, packed_bytes, run_chain, unpack_bits
from seu_bench_kit.blocks import alexnet

CLASSES = (2, 3, 4)
#: Units that each of three tasks adds: one adds none anywhere, others in some layers.
MLP = ((5, 4), (0, 0), (3, 2))
ALEXNET = ((2, 3, 4, 6, 5), (1, 0, 2, 0, 3), (0, 4, 0, 1, 0))


def grown(name: str, tasks: int = 3) -> tuple[GrowingNetwork, torch.Tensor]:
    torch.manual_seed(0)
    backbone: nn.Module = (
        mlp(InputShape("image", (1, 4, 4)), 0.02)[0] if name == "mlp" else alexnet(AlexNetShape.of(3, 16, 16, 0.05))
    )
    network = GrowingNetwork(chain_of(backbone, "a test"), CLASSES)
    for units in (MLP if name == "mlp" else ALEXNET)[:tasks]:
        network.grow(units)
    shape = (1, 4, 4) if name == "mlp" else (3, 16, 16)
    return network, torch.randn(6, *shape, generator=torch.Generator().manual_seed(1))


each = pytest.mark.parametrize("name", ["mlp", "alexnet"])


@each
def test_parameters_are_those_of_a_whole_network(name: str) -> None:
    """A task's path is as large as a network of so many units; the whole is the last one, and earlier heads."""
    network, _ = grown(name)
    heads = 0
    for task, classes in enumerate(CLASSES):
        widths = network.widths(task)
        whole, inputs = 0, network.chain[0].inputs
        for layer, units in zip(network.chain, widths, strict=True):
            whole += sum(weight.numel() for weight in layer.like(inputs, units).parameters())
            inputs = units
        head = classes * (inputs + 1)
        assert count_parameters(network.task_module(task)) == whole + head
        heads += head
    assert count_parameters(network) == whole + heads


@each
def test_earlier_tasks_keep_their_bits(name: str) -> None:
    found: list[Any] = []
    for tasks in (1, 2, 3):
        network, x = grown(name, tasks)
        network.eval()
        found.append([network.forward_single_task(x, task) for task in range(tasks)])
        assert [logits.shape for logits in found[-1]] == [(6, classes) for classes in CLASSES[:tasks]]
    for tasks in (1, 2):
        for task in range(tasks):
            assert torch.equal(found[tasks][task], found[tasks - 1][task])


@each
def test_blocks_are_the_weights_of_one_layer(name: str) -> None:
    """Computed with dense layers that have the assembled weights, the logits are the same."""
    network, x = grown(name)
    network.eval()
    for task in range(3):
        hidden = x
        for index, layer in enumerate(network.chain):
            dense = layer.like(*network.layer(index).size(task))
            weights = {"weight": network.layer(index).weight(task), "bias": network.layer(index).bias(task)}
            dense.load_state_dict(weights)
            hidden = layer.after(dense(layer.before(hidden)))
        assert torch.allclose(network.heads[task](hidden), network.forward_single_task(x, task), atol=1e-6)


@each
def test_architecture_makes_it_again(name: str) -> None:
    network, x = grown(name, 2)
    network.freeze()
    network.grow((MLP if name == "mlp" else ALEXNET)[2])
    again = GrowingNetwork(network.chain, CLASSES)
    again.load_architecture(network.architecture())
    again.load_state_dict(network.state_dict())
    assert torch.equal(again.eval().forward_single_task(x, 2), network.eval().forward_single_task(x, 2))
    assert [p.requires_grad for p in again.parameters()] == [p.requires_grad for p in network.parameters()]
    with pytest.raises(ValueError, match="units already"):
        again.load_architecture(network.architecture())


def copied(network: GrowingNetwork) -> dict[str, torch.Tensor]:
    return {key: value.clone() for key, value in network.state_dict().items()}


@each
def test_widened_and_narrowed_back(name: str) -> None:
    """Units that are added to the newest task and removed again leave the weights as they were, and earlier bits."""
    network, x = grown(name, 2)
    network.eval()
    before, weights = [network(x, task) for task in (0, 1)], copied(network)
    added = network.added_units(1)
    more = tuple(range(2, 2 + len(added)))
    network.widen(more)
    assert network.added_units(1) == tuple(one + other for one, other in zip(added, more, strict=True))
    assert torch.equal(network(x, 0), before[0])
    for key, value in weights.items():
        if not key.endswith(".1") and "heads.1" not in key:
            assert torch.equal(network.state_dict()[key], value)
    network.keep([torch.arange(one + other) < one for one, other in zip(added, more, strict=True)])
    assert copied(network).keys() == weights.keys()
    assert all(torch.equal(network.state_dict()[key], value) for key, value in weights.items())
    assert torch.equal(network(x, 1), before[1])


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
        (resnet18(InputShape("image", (3, 8, 8)), 0.1)[0], "it has a BatchNorm2d"),
    ],
)
def test_others_are_refused(network: nn.Module, told: str) -> None:
    with pytest.raises(RequestError, match=told):
        chain_of(network, "hat")


def test_freezing_frees_gradients() -> None:
    frozen, other, parameter = nn.Linear(2, 2), nn.Linear(2, 2), nn.Parameter(torch.ones(2))
    (other(frozen(torch.ones(1, 2))) * parameter).sum().backward()
    freeze(frozen, parameter)
    assert is_frozen(frozen, parameter) and not is_frozen(frozen, other) and is_frozen(nn.ReLU())
    assert frozen.weight.grad is None and parameter.grad is None and other.weight.grad is not None


def test_bits_are_in_order() -> None:
    assert pack_bits(torch.tensor([True, False, True, *[False] * 5, True])).tolist() == [5, 1]


@pytest.mark.parametrize("shape", [(1,), (7,), (8,), (9,), (3, 5), (2, 3, 3, 3), (0,)])
def test_there_and_back(shape: tuple[int, ...]) -> None:
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(1)) < 0.5
    packed = pack_bits(mask)
    assert (packed.dtype, packed.nbytes) == (torch.uint8, packed_bytes(mask.numel()))
    assert torch.equal(unpack_bits(packed, shape), mask)
