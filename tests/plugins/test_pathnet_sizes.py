"""PathNet's sizes in closed form at published widths, and its cost."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from support.commands import Command
from support.plugins.pathnet import QUICK, perceptron, stream
from support.tiny import context, registry
from torch import nn

from seu_bench.training import Cost
from seu_bench_kit import ChainLayer, chain_of
from seu_bench_pathnet.network import ModularNetwork, module_factor


def published_chain() -> tuple[ChainLayer, ...]:
    """The network of the published code for images of 32x32 pixels, with its own kernels."""
    convolutions = [nn.Conv2d(3, 64, 4), nn.Conv2d(64, 128, 3), nn.Conv2d(128, 256, 2)]
    linear = [nn.Linear(256 * 2 * 2, 2048), nn.Linear(2048, 2048)]
    return chain_of(nn.Sequential(*convolutions, nn.Flatten(), *linear), "pathnet")


@pytest.mark.parametrize(("modules", "published"), [(16, 0.258), (10, 0.325), (20, 0.231)])
def test_factors_of_the_published_code(modules: int, published: float) -> None:
    """It states them to three places, cut or rounded, as matching the parameters of its network with heads for eight
    data sets."""
    with torch.device("meta"):
        factor = module_factor(published_chain(), modules, (10, 100, 10, 10, 10, 43, 100, 10))
    assert factor == pytest.approx(published, abs=0.6e-3)


@pytest.mark.parametrize("modules", [1, 2, 7, 16])
@pytest.mark.parametrize("sizes", [(784, 400), (16, 100)])
def test_the_factor_is_the_root(modules: int, sizes: tuple[int, int]) -> None:
    """With it, M modules of f times the width have the parameters of the perceptron, were they not whole numbers."""
    (inputs, hidden), classes = sizes, (10, 2, 3)
    f = module_factor(chain_of(perceptron(inputs, hidden), "pathnet"), modules, classes)
    width = f * hidden
    found = modules * (inputs * width + width + width * width + width) + width * 15 + 15
    assert found == pytest.approx((inputs * hidden + hidden) + (hidden * hidden + hidden) + hidden * 15 + 15)
    assert modules > 1 or f == pytest.approx(1)


#: Parameters as sums of 16 modules of each layer and the heads, written out.
PUBLISHED: dict[tuple[str, str], int] = {
    ("split_cifar100", "alexnet"): 515 * 100
    + 16 * ((27 * 16 + 16) + (144 * 32 + 32) + (288 * 64 + 64) + (1024 * 514 + 514) + (514 * 514 + 514)),
    ("pmnist", "alexnet"): 516 * 100
    + 16 * ((9 * 16 + 16) + (144 * 32 + 32) + (288 * 64 + 64) + (576 * 515 + 515) + (515 * 515 + 515)),
    ("pmnist", "mlp"): 39 * 100 + 16 * ((784 * 38 + 38) + (38 * 38 + 38)),
    ("split_cifar100", "mlp"): 29 * 100 + 16 * ((3072 * 28 + 28) + (28 * 28 + 28)),
}

#: Parameters of the network that is replaced, with its heads.
REPLACED = {
    ("split_cifar100", "alexnet"): 13_162_724,
    ("pmnist", "alexnet"): 9_491_556,
    ("pmnist", "mlp"): (784 * 400 + 400) + (400 * 400 + 400) + 401 * 100,
    ("split_cifar100", "mlp"): (3072 * 400 + 400) + (400 * 400 + 400) + 401 * 100,
}


@pytest.mark.parametrize(("benchmark", "backbone"), PUBLISHED)
def test_published_sizes(command: Command, benchmark: str, backbone: str) -> None:
    """At full width: as many parameters as by hand, at most those of the network that is replaced, with every task the
    same; bits for each module and task; both paths trained for all of the 50 epochs."""
    answer = command(
        *("cost", "--format", "json", "--strategy", "pathnet", "--benchmark", benchmark, "--protocol", "paper"),
        *("-o", f"backbone={backbone}"),
    )
    assert answer.status == 0
    document = json.loads(answer.out)
    params = PUBLISHED[benchmark, backbone]
    tasks = len(document["tasks"])
    assert document["params_total"] == document["params_total_min"] == [params] * tasks
    assert 0.93 * REPLACED[benchmark, backbone] < params <= REPLACED[benchmark, backbone]
    layers = {"alexnet": 5, "mlp": 2}[backbone]
    assert document["mask_bits"] == [(task + 1) * layers * 16 for task in range(tasks)]
    assert document["memory_bytes"] == [4 * params + (task + 1) * layers * 2 for task in range(tasks)]
    train, valid = (54_000, 6_000) if benchmark == "pmnist" else (9_000, 1_000)
    assert document["stages"]["search"] == {
        "train": tasks * 2 * 50 * train,
        "evaluate": tasks * 2 * 50 * valid,
        "image_passes": tasks * 2 * 50 * (train + valid),
    }


def cost_of(options: dict[str, Any]) -> Cost:
    found: Cost = registry().strategies.find("pathnet").factory.cost(context(stream().plan, "pathnet", options))
    return found


def test_a_path_of_all_and_one_of_the_fewest_modules_are_the_bounds() -> None:
    """Multiply-accumulates of one module a layer to ``active``: those of the perceptron's layers, written out."""
    cost = cost_of(QUICK)
    width = ModularNetwork(chain_of(perceptron(64, 80), "pathnet"), (2, 3, 2), 5).widths[0]
    for bound, modules in ((cost.macs, 2), (cost.macs_min, 1)):
        assert bound == tuple(modules * (64 * width + width * width) + width * classes for classes in (2, 3, 2))
    assert cost.train_flops_min is not None and cost.train_flops is not None
    assert 0 < cost.train_flops_min < cost.train_flops
