"""The training-free searcher: what is chosen, images passed and states."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import sympy
import torch
from support.components import SCHEDULE, search_task
from support.tiny import image_shape, same, weights
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from seu_bench_kit.cells import CellSpace
from seu_bench_kit.genotypes import GENOTYPES
from seu_bench_kit.networks import GenotypeNetwork
from seu_bench_kit.sampling import genotype_network
from seu_bench_zero_cost import ZeroCostOptions
from seu_bench_zero_cost.searcher import ZeroCostSearch, naswot, synflow

SHAPE = (1, 8, 8)


def batch(count: int = 4, seed: int = 1) -> Tensor:
    return torch.randn(count, *SHAPE, generator=torch.Generator().manual_seed(seed))


class Outputs(TorchFunctionMode):
    """Keeps what every call of ReLU gives, wherever it is made: no hooks, no list of modules."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = func(*args, **(kwargs or {}))
        if func is nn.functional.relu:
            self.kept.append(given.detach().clone())
        return given


def naswot_directly(outputs: Iterable[Tensor]) -> float:
    """By explicit loops over pairs of images, the determinant in whole numbers."""
    parts = [output.reshape(len(output), -1).tolist() for output in outputs]
    codes = [[value > 0 for part in parts for value in part[image]] for image in range(len(parts[0]))]
    kernel = [[sum(a == b for a, b in zip(one, other, strict=True)) for other in codes] for one in codes]
    value = sympy.Matrix(kernel).det()  # in whole numbers
    return math.log(value) if value > 0 else -math.inf


def synflow_directly(network: nn.Module) -> float:
    """On a copy whose parameters are made positive in place, by plain autograd."""
    copied = copy.deepcopy(network).double().eval()
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.abs_()
    copied(torch.ones(1, *SHAPE, dtype=torch.float64)).sum().backward()
    return math.log(
        sum(float((p.detach() * p.grad).sum()) for p in copied.parameters() if p.grad is not None),
    )


pytestmark = pytest.mark.long


def search(seed: int = 3, space: CellSpace | None = None, **options: Any) -> ZeroCostSearch:
    given = ZeroCostOptions(**{"candidates": 5, "images": 6, **options})
    return ZeroCostSearch(given, search_task(seed, space))


def chosen(score: str, **scores: list[float]) -> int:
    """Which of the genotypes is taken, by position, if these are their scores."""
    stage = search(score=score, candidates=len(next(iter(scores.values()))))
    stage.run()
    assert set(stage.scores) == set(scores)
    stage.scores = scores
    return stage.genotypes.index(stage.result().to_dict())


def test_best_is_chosen_and_of_equal_ones_the_first() -> None:
    """By one score the highest is taken, by both the highest sum of ranks; ties go to the first drawn."""
    assert chosen("naswot", naswot=[1.0, 3.0, 2.0, 3.0]) == 1
    assert chosen("synflow", synflow=[-math.inf, -5.0, -7.0]) == 1
    assert chosen("naswot", naswot=[-math.inf, -math.inf]) == 0
    # Ranks 0 2 1 and 2 0 1: all sum to two. The scores themselves would say otherwise.
    assert chosen("both", naswot=[0.0, 900.0, 1.0], synflow=[9.0, 7.0, 8.0]) == 0
    # Ranks 0 1 2 and 1 2 0.
    assert chosen("both", naswot=[0.0, 1.0, 100.0], synflow=[2.0, 3.0, 1.0]) == 1
    # Equal scores share a rank: 0 0 2 and 2 1 0; 2, 1, 2.
    assert chosen("both", naswot=[0.0, 0.0, 1.0], synflow=[9.0, 8.0, 7.0]) == 0


@pytest.mark.parametrize(
    "score", [*(pytest.param(name, marks=pytest.mark.long) for name in ("naswot", "synflow")), "both"]
)
def test_search_scores_each_and_takes_the_best(score: str) -> None:
    """Every genotype drawn is scored at the protocol's size, on one batch, and the best by the scores is the result."""
    stage = search(score=score, candidates=8)
    networks: list[nn.Module] = []
    expected: dict[str, list[float]] = {name: [] for name in ("naswot", "synflow") if score in (name, "both")}
    # The stage's own draws, again: its network is made right after its genotype.
    twin = search(score=score, candidates=8)
    with twin.randomness.active():
        for _ in range(8):
            found = twin.search_task.space.random_genotype()
            networks.append(genotype_network(twin.search_task, SCHEDULE, found))
            if "synflow" in expected:
                expected["synflow"].append(synflow_directly(networks[-1]))
            if "naswot" in expected:
                with Outputs() as seen, torch.no_grad():
                    networks[-1](stage.images)
                expected["naswot"].append(naswot_directly(seen.kept))
            twin.genotypes.append(found.to_dict())
    best = stage.run()
    assert stage.genotypes == twin.genotypes and len(set(map(str, stage.genotypes))) == 8
    for name, values in expected.items():
        assert stage.scores[name] == pytest.approx(values, rel=1e-9)
    sums = [sum(sum(b < a for b in values) for values in expected.values() for a in [values[at]]) for at in range(8)]
    assert best.to_dict() == stage.genotypes[int(np.argmax(sums))]
    assert len(set(sums)) > 1


def unit_network(name: str, seed: int = 0) -> GenotypeNetwork:
    torch.manual_seed(seed)
    return GenotypeNetwork(GENOTYPES[name], image_shape(), 3, 3, 2, CellSpace())


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


def test_synflow_by_hand() -> None:
    """Two weights in a row: the output is |2| |-3| 1, and each weight's share is the whole of it."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
    for layer, value in ((network[1], 2.0), (network[2], -3.0)):
        nn.init.constant_(layer.weight, value)
    assert synflow(network, (1, 1, 1)) == pytest.approx(math.log(6 + 6), rel=1e-15)


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


def test_synflow_of_large_numbers() -> None:
    """Scores beyond single precision stay finite."""
    layers = [nn.Linear(8, 8, bias=False) for _ in range(10)]
    for layer in layers:
        nn.init.constant_(layer.weight, 1e5)
    # Each layer multiplies by 8e5, the first adds up 8 ones, the sum has 8 outputs; every layer has the same share.
    expected = math.log(10) + 10 * math.log(8e5) + math.log(8)
    assert expected > math.log(torch.finfo(torch.float32).max)
    assert synflow(nn.Sequential(nn.Flatten(), *layers), (8, 1, 1)) == pytest.approx(expected, rel=1e-12)
