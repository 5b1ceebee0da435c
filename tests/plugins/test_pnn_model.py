"""Progressive networks: outputs, modes, gradients and paths."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import pytest
import torch
from support.commands import Command
from torch import Tensor
from torch.nn import functional

from seu_bench.models.sizes import count_parameters
from seu_bench_kit.blocks import AlexNetShape
from seu_bench_methods.pnn import ProgressiveNetwork

Variant: TypeAlias = Literal["proper", "compat"]


VARIANTS: list[Variant] = ["proper", "compat"]


both = pytest.mark.parametrize("variant", VARIANTS)


#: Sizes that differ wherever they may.
SMALL = AlexNetShape(2, 9, 16, (3, 4, 5), 7)


CLASSES = (2, 4, 3)


def network(variant: Variant, shape: AlexNetShape = SMALL, columns: int = 3, seed: int = 0) -> ProgressiveNetwork:
    """A network of which the newest column trains."""
    torch.manual_seed(seed)
    made = ProgressiveNetwork(shape, CLASSES, variant)
    for task in range(columns):
        made.freeze()
        made.expand(task)
    return made


def column_size(shape: AlexNetShape, t: int, n: int) -> int:
    """Parameters of column t with n classes: its layers, and a lateral of s, V and U into each but the first."""
    inputs = (shape.image_channels, *shape.convolutions[:2], shape.flat, shape.linear, shape.linear)
    outputs = (*shape.convolutions, shape.linear, shape.linear, n)
    kernels = (9, 9, 9, 1, 1, 1)
    layers = [(k * i + 1) * o for k, i, o in zip(kernels, inputs, outputs, strict=True)]
    laterals = [t + i * (i * t + 1) + layer for i, layer in zip(inputs[1:], layers[1:], strict=True)]
    return sum(layers) + (sum(laterals) if t else 0)


@cache
def cost(command: Command, *arguments: object) -> dict[str, Any]:
    answer = command("cost", "--strategy", "pnn", "--no-time", "--format", "json", *arguments)
    assert (answer.status, answer.err) == (0, "")
    document: dict[str, Any] = json.loads(answer.out)
    return document


def images(count: int = 6, shape: AlexNetShape = SMALL) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.randn(count, shape.image_channels, shape.height, shape.width, generator=generator)


def reference(state: dict[str, Tensor], x: Tensor, task: int, variant: Variant) -> Tensor:
    """Logits without dropout, straight from the formula: everything is computed anew wherever it is named."""

    def affine(name: str, value: Tensor) -> Tensor:
        weight, bias = state[f"{name}.weight"], state[f"{name}.bias"]
        if weight.dim() == 4:
            return functional.conv2d(value, weight, bias, padding=weight.shape[-1] // 2)
        return value @ weight.T + bias

    def hidden(column: int, depth: int, laterals: bool) -> Tensor:
        """The input of the layer at a depth."""
        if depth == 0:
            return x
        value = output(column, depth - 1, laterals).relu()
        if depth <= 3:
            value = functional.max_pool2d(value, 2)
        return value.reshape(len(x), -1) if depth == 3 else value

    def output(column: int, depth: int, laterals: bool) -> Tensor:
        """W(h), and U(ReLU(V(concat s h))) where there is a lateral."""
        total = affine(f"columns.{column}.layers.{depth}", hidden(column, depth, laterals))
        if laterals and column and depth and not (variant == "compat" and depth == 5):
            name = f"columns.{column}.laterals.{depth - 1}"
            # In the published code earlier columns are computed as if they had no laterals.
            earlier = [
                state[f"{name}.scales"][other] * hidden(other, depth, variant == "proper") for other in range(column)
            ]
            total = total + affine(f"{name}.projection", affine(f"{name}.reduction", torch.cat(earlier, 1)).relu())
        return total

    return output(task, 5, True)


@both
@pytest.mark.parametrize("mode", ["eval", "train without dropout"])
def test_outputs_by_the_formula(variant: Variant, mode: str) -> None:
    """Three columns of unequal heads compute what the formula says."""
    shape = SMALL if mode == "eval" else replace(SMALL, dropout=(0.0,) * 5)
    made = network(variant, shape).double().train(mode != "eval")
    state, x = made.state_dict(), images().double()
    for task, classes in enumerate(CLASSES):
        found = made.forward_single_task(x, task)
        assert found.shape == (6, classes)
        assert torch.allclose(found, reference(state, x, task, variant), rtol=1e-12, atol=1e-12)
    other = reference(state, x, 2, "compat" if variant == "proper" else "proper")
    assert not torch.allclose(found, other, rtol=1e-2)


@both
def test_paths(variant: Variant) -> None:
    """A task's path is what its logits depend on, and every part of it once: the rest may be anything."""
    made = network(variant).eval()
    before = made(images(), 1)
    parameters = list(made.task_module(1).parameters())
    path = {id(parameter) for parameter in parameters}
    assert len(path) == len(parameters)
    for parameter in made.parameters():
        if id(parameter) not in path:
            parameter.data.fill_(float("nan"))
    assert torch.equal(made(images(), 1), before)
    for parameter in parameters:
        kept = parameter.data.clone()
        parameter.data.fill_(float("nan"))
        assert bool(made(images(), 1).isnan().any())
        parameter.data.copy_(kept)
    assert {id(parameter) for parameter in made.trainable_module(1).parameters()} <= path


@both
@pytest.mark.parametrize("shape", [SMALL, AlexNetShape(1, 8, 8, (1, 1, 1), 1), AlexNetShape(3, 24, 17, (2, 5, 3), 4)])
def test_parameters_of_columns(variant: Variant, shape: AlexNetShape) -> None:
    """Each column has as many parameters as the formula says, in both variants."""
    made = network(variant, shape)
    assert [count_parameters(column) for column in made.columns] == [
        column_size(shape, task, classes) for task, classes in enumerate(CLASSES)
    ]
    assert [tuple(lateral.scales.shape) for lateral in made.column(2).laterals] == [(2,)] * 5


COLUMNS = {
    "split_cifar10": [12_961_922, 51_116_745, 76_303_054, 101_489_363, 126_675_672],
    "pmnist": [
        *(9_307_146, 32_337_753, 46_055_262, 59_772_771, 73_490_280),
        *(87_207_789, 100_925_298, 114_642_807, 128_360_316, 142_077_825),
    ],
}


TOTALS = {
    "split_cifar10": 368_546_756,
    "split_cifar100": 368_878_694,
    "pmnist": 794_177_247,
    "mixture": 368_731_166,
}


CLASSES_OF = {"split_cifar100": [20] * 5, "mixture": [28, 10, 10, 10, 10]}


@both
@pytest.mark.parametrize(
    "benchmark", [pytest.param(name, marks=[] if name == "split_cifar10" else pytest.mark.long) for name in TOTALS]
)
def test_published_sizes(command: Command, benchmark: str, variant: Variant) -> None:
    """The four networks of the paper, column by column, to the unit."""
    document = cost(command, "--benchmark", benchmark, "--protocol", "paper", "-o", f"variant={variant}")
    total = document["params_total"]
    assert total[-1] == TOTALS[benchmark]
    assert document["params_total_min"] == total
    columns = [after - before for before, after in pairwise([0, *total])]
    if benchmark in COLUMNS:
        assert columns == COLUMNS[benchmark]
    else:
        shape = AlexNetShape(3, 32, 32)
        assert columns == [column_size(shape, task, n) for task, n in enumerate(CLASSES_OF[benchmark])]


PUBLISHED_MACS = {
    "split_cifar10": (2, [52.1, 177.6, 257.0, 340.6, 428.3]),
    "pmnist": (10, [38.5, 125.7, 179.2, 237.0, 299.0, 365.2, 435.5, 510.1, 588.9, 671.8]),
}


@pytest.mark.parametrize("benchmark", PUBLISHED_MACS)
@pytest.mark.long
def test_macs_of_compat(command: Command, benchmark: str) -> None:
    """The published code's multiply-accumulates are the path's and those of what it computes beside it.

    That is the second linear layer of the earlier columns, which only laterals into heads read, every other task's
    head, and the laterals into the heads of the tasks before.
    """
    document = cost(command, "--benchmark", benchmark, "--protocol", "paper", "-o", "variant=compat")
    classes, published = PUBLISHED_MACS[benchmark]
    tasks, second, head = len(published), 2048 * 2048, 2048 * classes
    beside = [
        t * second + (tasks - 1) * head + sum(earlier * second + head for earlier in range(1, t)) for t in range(tasks)
    ]
    found = [(path + more) / 1e6 for path, more in zip(document["macs"], beside, strict=True)]
    assert [round(value, 1) for value in found] == published
    assert document["macs_min"] == document["macs"]


def test_macs_of_proper_by_hand(command: Command) -> None:
    """Task 1 of split CIFAR-10: two columns, one head, and the second column's five laterals."""
    document = cost(command, "--benchmark", "split_cifar10", "--protocol", "paper", "-o", "variant=proper")
    plain = 32**2 * 27 * 64 + 16**2 * 576 * 128 + 8**2 * 1152 * 256 + 4096 * 2048 + 2048 * 2048
    head = 2048 * 2
    reductions = 16**2 * 64 * 64 + 8**2 * 128 * 128 + 4096 * 4096 + 2 * 2048 * 2048
    projections = plain - 32**2 * 27 * 64 + head
    assert document["macs"][:2] == [plain + head, 2 * plain + head + reductions + projections]
