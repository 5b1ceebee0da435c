"""Networks that grow by units: sizes by closed form, and earlier tasks that keep their bits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from seu_bench.errors import RunError
from seu_bench.models import count_parameters
from seu_bench_backbones.networks import mlp
from seu_bench_kit import AlexNetShape, GrowingNetwork, chain_of
from seu_bench_kit.blocks import alexnet

CLASSES = (2, 3, 4)
#: Units that each of three tasks adds: one adds none anywhere, others in some layers.
MLP = ((5, 4), (0, 0), (3, 2))
ALEXNET = ((2, 3, 4, 6, 5), (1, 0, 2, 0, 3), (0, 4, 0, 1, 0))


def grown(name: str, tasks: int = 3) -> tuple[GrowingNetwork, torch.Tensor]:
    torch.manual_seed(0)
    backbone: nn.Module = mlp(1, 4, 4, 0.02)[0] if name == "mlp" else alexnet(AlexNetShape.of(3, 16, 16, 0.05))
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


def test_what_does_not_fit_is_refused() -> None:
    network, x = grown("mlp", 0)
    for units in ((0, 1), (1, -1), (1,), (1, 1, 1)):
        with pytest.raises(ValueError, match="cannot add units"):
            network.grow(units)
    with pytest.raises(RunError, match="task 0 has no units yet"):
        network.forward_single_task(x, 0)
    for units in MLP:
        network.grow(units)
    with pytest.raises(ValueError, match="task 3 cannot add"):
        network.grow((1, 1))


# --- the newest step, while its task is learned -------------------------------------------------------------------


def copied(network: GrowingNetwork) -> dict[str, torch.Tensor]:
    return {key: value.clone() for key, value in network.state_dict().items()}


@each
def test_widened_and_narrowed_back(name: str) -> None:
    """Units that are added to the newest task and removed again leave the weights as they were, and earlier bits."""
    network, x = grown(name, 2)
    network.eval()
    before, weights = [network(x, task) for task in (0, 1)], copied(network)
    added = network.added(1)
    more = tuple(range(2, 2 + len(added)))
    network.widen(more)
    assert network.added(1) == tuple(one + other for one, other in zip(added, more, strict=True))
    assert torch.equal(network(x, 0), before[0])
    for key, value in weights.items():
        if not key.endswith(".1") and "heads.1" not in key:
            assert torch.equal(network.state_dict()[key], value)
    network.keep([torch.arange(one + other) < one for one, other in zip(added, more, strict=True)])
    assert copied(network).keys() == weights.keys()
    assert all(torch.equal(network.state_dict()[key], value) for key, value in weights.items())
    assert torch.equal(network(x, 1), before[1])


@each
def test_units_that_compute_nothing_can_go(name: str) -> None:
    """Removing units without weights changes no logit; sizes are those of a network that never had them."""
    network, x = grown(name, 2)
    network.eval()
    network.widen([2] * len(network.layers))
    stay = []
    with torch.no_grad():
        for index, count in enumerate(network.added(1)):
            layer = network.layer(index)
            layer.own["1"][-2] = 0.0
            layer.biases["1"][-2] = 0.0
            stay.append(torch.arange(count) != count - 2)
    before = network(x, 1)
    network.keep(stay)
    assert torch.allclose(network(x, 1), before, atol=1e-6)
    again = GrowingNetwork(network.chain, CLASSES)
    again.load_architecture(network.architecture())
    again.load_state_dict(network.state_dict())
    assert torch.equal(again.eval()(x, 1), network(x, 1))
