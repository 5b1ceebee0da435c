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
