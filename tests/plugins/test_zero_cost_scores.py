"""NASWOT and SynFlow against direct computation."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from support.plugins.zero_cost import SHAPE, Outputs, batch, naswot_directly, synflow_directly
from support.tiny import all_threads, one_thread, same, weights
from torch import nn

from seu_bench_kit.cells import GenotypeNetwork
from seu_bench_kit.search_space import GENOTYPES, SearchSpace
from seu_bench_zero_cost.scores import naswot, synflow

setup_module, teardown_module = one_thread, all_threads


def sequential(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = [nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16, 3))


def unit_network(name: str, seed: int = 0) -> GenotypeNetwork:
    torch.manual_seed(seed)
    return GenotypeNetwork(GENOTYPES[name], 1, 3, 3, 2, SearchSpace())


# --- NASWOT -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 4])
def test_naswot_of_a_sequential(count: int) -> None:
    """The score of a plain network, its ReLUs' outputs collected layer by layer."""
    network = sequential()
    images = batch(count)
    outputs, x = [], images
    for layer in copy.deepcopy(network):
        x = layer(x)
        if isinstance(layer, nn.ReLU):
            outputs.append(x)
    assert len(outputs) == 2
    expected = naswot_directly(outputs)
    assert math.isfinite(expected)
    assert naswot(network, images) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["darts_v2", "mdenas_mixture"])
def test_naswot_of_a_unit_network(name: str) -> None:
    """The score of a genotype's network counts every ReLU that is computed: preprocessing, operations, reductions."""
    network = unit_network(name)
    images = batch()
    with Outputs() as seen, torch.no_grad():
        copy.deepcopy(network)(images)
    relus = [module for module in network.modules() if isinstance(module, nn.ReLU)]
    assert len(seen.kept) == len(relus) > 10
    expected = naswot_directly(seen.kept)
    assert naswot(network, images) == pytest.approx(expected, rel=1e-12)
    # One layer less, and the score is another: the comparison would notice.
    assert naswot_directly(seen.kept[1:]) != pytest.approx(expected, rel=1e-6)


def test_naswot_leaves_no_hooks() -> None:
    """The network computes afterwards as before, and no parameter has changed."""
    network = unit_network("darts_v1")
    before = {name: parameter.detach().clone() for name, parameter in network.named_parameters()}
    first = naswot(network, batch())
    assert naswot(network, batch()) == first
    assert not any(module._forward_hooks for module in network.modules())
    assert same(dict(network.named_parameters()), before)


def test_naswot_grows_with_difference() -> None:
    """Images that switch more ReLUs differently score higher than nearly equal ones."""
    network = sequential()
    apart = batch(4)
    near = apart[:1] + 0.05 * batch(4, seed=2)
    assert naswot(network, near) < naswot(network, apart)


@pytest.mark.parametrize("count", [2, 4, 8, 16, 33, 64])
def test_naswot_of_equal_codes(count: int) -> None:
    """Two images with one code make the determinant zero, whatever rounding makes of it."""
    for seed in range(20):
        torch.manual_seed(seed)
        network = nn.Sequential(nn.Flatten(), nn.Linear(64, 300), nn.ReLU())
        images = batch(count, seed=seed)
        if count > 2:
            assert math.isfinite(naswot(network, images))
        one, other = torch.randperm(count)[:2].tolist()
        images[one] = images[other]
        assert naswot(network, images) == -math.inf


# --- SynFlow ----------------------------------------------------------------------------------------------------------


def test_synflow_of_a_sequential() -> None:
    """The score of a plain network, biases and norms among its parameters."""
    network = sequential()
    assert synflow(network, SHAPE) == pytest.approx(synflow_directly(network), rel=1e-12)


@pytest.mark.parametrize("name", GENOTYPES)
def test_synflow_of_a_unit_network(name: str) -> None:
    """The score of a genotype's network is that of a copy in double precision with positive weights."""
    network = unit_network(name)
    assert synflow(network, SHAPE) == pytest.approx(synflow_directly(network), rel=1e-12)


def test_synflow_by_hand() -> None:
    """Two weights in a row: the output is |2| |-3| 1, and each weight's share is the whole of it."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
    for layer, value in ((network[1], 2.0), (network[2], -3.0)):
        nn.init.constant_(layer.weight, value)
    assert synflow(network, (1, 1, 1)) == pytest.approx(math.log(6 + 6), rel=1e-15)


def test_synflow_of_large_numbers() -> None:
    """Scores beyond single precision stay finite."""
    layers = [nn.Linear(8, 8, bias=False) for _ in range(10)]
    for layer in layers:
        nn.init.constant_(layer.weight, 1e5)
    # Each layer multiplies by 8e5, the first adds up 8 ones, the sum has 8 outputs; every layer has the same share.
    expected = math.log(10) + 10 * math.log(8e5) + math.log(8)
    assert expected > math.log(torch.finfo(torch.float32).max)
    assert synflow(nn.Sequential(nn.Flatten(), *layers), (8, 1, 1)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("training", [True, False])
def test_synflow_changes_nothing(training: bool) -> None:
    """The network is bit by bit what it was: weights, statistics, types, mode, gradients."""
    network = unit_network("mdenas_pmnist").train(training)
    before = weights(network)
    kept = [(parameter, parameter.data_ptr()) for parameter in network.parameters()]
    first = synflow(network, SHAPE)
    assert same(weights(network), before)
    assert all(parameter.data_ptr() == place and parameter.requires_grad for parameter, place in kept)
    assert all(parameter.grad is None and parameter.dtype == torch.float32 for parameter in network.parameters())
    assert all(module.training == training for module in network.modules())
    assert synflow(network, SHAPE) == first


def test_synflow_without_a_path() -> None:
    """Where nothing reaches the output the score is minus infinity; a bias at the end is a path of its own."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 2, bias=False), nn.Linear(2, 2))
    nn.init.zeros_(network[1].weight)
    assert synflow(network, (1, 2, 2)) == pytest.approx(math.log(float(network[2].bias.detach().double().abs().sum())))
    nn.init.zeros_(network[2].bias)
    assert synflow(network, (1, 2, 2)) == -math.inf


def test_synflow_of_nan() -> None:
    """A weight that is NaN makes the score NaN, not the worst of all."""
    network = sequential()
    with torch.no_grad():
        next(network.parameters())[0] = math.nan
    assert math.isnan(synflow(network, SHAPE))
