"""Parts of DEN: rules, masks and units on networks of a few weights, in float64."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn

from seu_bench_den.weights import (
    OldLayer,
    distance,
    drifted_units,
    expansion_rule,
    first_rule,
    old_layers,
    pulled_rule,
    reached_units,
    selection_rule,
    shrink_units,
    soft_threshold,
    split_units,
    subgraph_masks,
    useful_units,
)
from seu_bench_kit import GrowingNetwork, chain_of


@pytest.fixture(autouse=True)
def _double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def network(*widths: int, classes: tuple[int, ...] = (1, 1)) -> GrowingNetwork:
    """Linear layers and ReLU between so many units, the first being pixels; the first task has learned."""
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, units in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, units), nn.ReLU()]
    made = GrowingNetwork(chain_of(nn.Sequential(*layers), "a test"), classes)
    made.grow(widths[1:])
    return made


def put(layer: nn.Module, weight: list[list[float]], bias: list[float], task: int = 0) -> None:
    layer.assign(task, torch.tensor(weight), torch.tensor(bias))


def put_head(made: GrowingNetwork, task: int, weight: list[list[float]]) -> None:
    with torch.no_grad():
        made.head(task).weight.copy_(torch.tensor(weight))
        made.head(task).bias.zero_()


# --- proximal steps -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [-0.7, -0.2, 0.1, 0.35])
def test_soft_threshold_is_the_proximal_step(value: float) -> None:
    """It minimises (x - w)^2 / 2 + amount |x|, here found on a grid."""
    grid = np.linspace(-1, 1, 2001)
    weight = torch.tensor([value])
    soft_threshold(weight, 0.2)
    assert float(weight) == pytest.approx(grid[np.argmin((grid - value) ** 2 / 2 + 0.2 * np.abs(grid))], abs=1e-9)


def test_shrunk_units() -> None:
    """Norms with the bias are 5, 7 and 1; 1 is taken off each, and what is left is the same direction."""
    weight, bias = torch.tensor([[3.0, 4.0], [2.0, 3.0], [0.6, 0.0]]), torch.tensor([0.0, 6.0, 0.8])
    shrink_units(weight, bias, 1.0)
    assert torch.allclose(weight[:2], torch.tensor([[2.4, 3.2], [12 / 7, 18 / 7]]))
    assert bias[1] == pytest.approx(36 / 7)
    assert (weight[2].tolist(), float(bias[2])) == ([0.0, 0.0], 0.0)
    assert useful_units(weight, bias).tolist() == [True, True, False]
    assert useful_units(torch.zeros(2, 3), torch.tensor([0.0, 1.0])).tolist() == [False, True]
    assert useful_units(torch.zeros(2, 3), None).tolist() == [False, False]


def test_group_sparsity_removes_useless_units() -> None:
    """Units are drawn to a target t by the gradient of |w - t|^2 / 2, with a group penalty of 1: those of |t| < 1 end
    at exactly 0 and go, that of |t| = 5 ends at t (1 - 1/5) and stays."""
    made = network(2, 2, 2)
    made.grow((0, 0))
    made.widen((3, 0))
    rule, layer = expansion_rule(made, 1), made.layer(0)
    targets = torch.tensor([[0.3, 0.4], [3.0, 4.0], [0.0, -0.9]])
    for _ in range(400):
        with torch.no_grad():
            layer.own["1"] -= 0.1 * (layer.own["1"] - targets)
            layer.biases["1"] -= 0.1 * layer.biases["1"]
        rule.shrink(0.0, 0.1)
    assert torch.allclose(layer.own["1"][1], torch.tensor([2.4, 3.2]))
    assert layer.own["1"][[0, 2]].tolist() == [[0.0, 0.0], [0.0, 0.0]]
    x = torch.randn(5, 1, 1, 2)
    before = made(x, 1)
    made.keep([useful_units(layer.own["1"], layer.biases["1"]), torch.ones(0, dtype=torch.bool)])
    assert (made.added(1), made.layer(0).own["1"].shape) == ((1, 0), (1, 2))
    assert torch.allclose(made(x, 1), before, rtol=0, atol=1e-12)


# --- what a stage trains ------------------------------------------------------------------------------------------


def test_rules() -> None:
    """Which parameters train in which stage, and which are made sparse."""
    made = network(3, 2, 2)
    assert len(first_rule(made).sparse) == 3
    assert {*first_rule(made).masks} == {*made.parameters()}
    made.grow((0, 0))
    made.widen((1, 2))
    head = [*made.head(1).parameters()]
    assert [*selection_rule(made, 1).masks] == head
    rule = expansion_rule(made, 1)
    names = {name for name, parameter in made.named_parameters() if parameter in rule.masks}
    assert names == {
        *("heads.1.weight", "heads.1.bias", "layers.0.own.1", "layers.0.biases.1"),
        *("layers.1.own.1", "layers.1.biases.1", "layers.1.across.1"),
    }
    assert [len(rule.sparse), len(rule.groups)] == [3, 2]
    pulled = pulled_rule(made, 1)
    assert pulled.pulled
    assert {*pulled.masks} == {*made.parameters()} - {*made.head(0).parameters()}
    pulled.apply_to(made)
    assert not made.head(0).weight.requires_grad
    assert made.layer(0).own["0"].requires_grad


# --- the sub-graph ------------------------------------------------------------------------------------------------


@pytest.fixture
def sparse() -> GrowingNetwork:
    """Outputs read unit 0 of the second layer; that one reads units 1 and 2 of the first."""
    made = network(2, 4, 3, classes=(1, 2))
    put(made.layer(0), [[1, 1], [2, 0], [0, 3], [4, 4]], [0.1, 0.2, 0.3, 0.4])
    put(made.layer(1), [[0, 5, 6, 0], [7, 7, 7, 7], [0, 0, 0, 8]], [0.5, 0.6, 0.7])
    made.grow((0, 0))
    put_head(made, 1, [[0, 0, 0], [9, 0, 0]])
    return made


def test_subgraph(sparse: GrowingNetwork) -> None:
    """Each output counts, not the first alone."""
    units = reached_units(sparse, 1)
    assert [each.tolist() for each in units] == [[False, True, True, False], [True, False, False]]
    masks = subgraph_masks(sparse, 1, units)
    first, second, head = sparse.layer(0), sparse.layer(1), sparse.head(1)
    assert masks[first.own["0"]].tolist() == [[False] * 2, [True] * 2, [True] * 2, [False] * 2]
    assert masks[first.biases["0"]].tolist() == [False, True, True, False]
    assert masks[second.own["0"]].tolist() == [[False, True, True, False], [False] * 4, [False] * 4]
    assert masks[second.biases["0"]].tolist() == [True, False, False]
    assert masks[head.weight].tolist() == [[True, False, False]] * 2
    assert masks[head.bias].tolist() == [True, True]
    assert len(masks) == 6


# --- splitting ----------------------------------------------------------------------------------------------------


@pytest.fixture
def drifted() -> tuple[GrowingNetwork, list[OldLayer]]:
    """Drifts of .5 and .005 in the first layer, of 0 and .1 in the second."""
    made = network(2, 2, 2)
    put(made.layer(0), [[1, 0], [0, 1]], [0.1, 0.2])
    put(made.layer(1), [[1, 2], [3, 4]], [0.3, 0.4])
    put_head(made, 0, [[1, 1]])
    made.grow((0, 0))
    old = old_layers(made, 0)
    put(made.layer(0), [[1.3, 0.4], [0.003, 1.004]], [1.1, 0.2])
    put(made.layer(1), [[1, 2], [3.06, 4.08]], [0.3, 1.4])
    put_head(made, 1, [[5, 6]])
    return made, old


def test_drift(drifted: tuple[GrowingNetwork, list[OldLayer]]) -> None:
    made, old = drifted

    def found(*arguments: object) -> list[list[int]]:
        return [each.tolist() for each in drifted_units(made, 0, old, *arguments)]

    assert found(0.05, 10) == [[0], [1]]
    assert found(0.2, 10) == [[0], []]
    assert found(0.001, 10) == [[0, 1], [1]]
    assert found(0.001, 1) == [[0], [1]]
    weights = 0.5**2 + 0.005**2 + 0.1**2
    assert float(distance(made, 0, old).detach()) == pytest.approx(weights + 1.0 + 1.0)


def test_split(drifted: tuple[GrowingNetwork, list[OldLayer]]) -> None:
    """Units 0 and 1 have their old weights again; the copies are behind, and what they read is the copy."""
    made, old = drifted
    split_units(made, 1, old, drifted_units(made, 0, old, 0.05, 10))
    assert (made.added(1), made.widths(0), made.widths(1)) == ((1, 1), (2, 2), (3, 3))
    first, second = made.layer(0), made.layer(1)
    assert first.weight(1).tolist() == [[1, 0], [0.003, 1.004], [1.3, 0.4]]
    assert first.bias(1).tolist() == [0.1, 0.2, 1.1]
    assert second.weight(1).tolist() == [[1, 2, 0], [3, 4, 0], [0, 4.08, 3.06]]
    assert second.bias(1).tolist() == [0.3, 0.4, 1.4]
    assert made.head(1).weight.tolist() == [[5, 0, 6]]
    assert made.head(0).weight.tolist() == [[1, 1]]
