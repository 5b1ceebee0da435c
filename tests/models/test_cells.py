"""A unit computes the graph of its genotype, a frozen one never changes, the proxy computes what is sampled only."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest
import torch
from support.closed_form import operation_parameters
from support.direct import bring, conv, inputs, norm, operate_directly, unsettled
from support.tiny import all_threads, image_shape, one_thread, same, super_model, weights
from torch import Tensor, nn
from torch.nn import functional

from seu_bench.models.sizes import count_parameters
from seu_bench_kit.cells import CellSpace, ExtensionUnit, FactorizedReduce, ProxyCell, make_operation
from seu_bench_kit.genotypes import EDGES, GENOTYPES, OPERATIONS, Edge, Genotype, uniform_genotype
from seu_bench_kit.networks import GenotypeNetwork, ProxyNetwork
from seu_bench_kit.search_space import CellPlan, cell_plans
from seu_bench_kit.units import Unit

setup_module, teardown_module = one_thread, all_threads

PLANS = cell_plans(6, 2)
MIXED = Genotype.from_dict(
    {
        kind: [[node, source, OPERATIONS[(3 * node + 5 * source + shift) % 8]] for node, source in EDGES]
        for kind, shift in (("normal", 0), ("reduction", 3))
    }
)
ALL = {**GENOTYPES, "mixed": MIXED, "none": uniform_genotype("none"), "sep5": uniform_genotype("sep_conv_5x5")}


def unit(genotype: Genotype, plan: CellPlan, space: CellSpace | None = None) -> ExtensionUnit:
    torch.manual_seed(0)
    made = ExtensionUnit(genotype, plan, space or CellSpace())
    unsettled(made)
    return made


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: f"{plan.kind}-{plan.channels}-{plan.after_reduction}")
@pytest.mark.parametrize("name", ["darts_v1", "mdenas_pmnist", "mdenas_mixture", "mixed"])
def test_unit_computes_its_genotype(name: str, plan: CellPlan) -> None:
    """A unit equals its graph evaluated edge by edge, bit by bit, in normal and in reduction cells."""
    made = unit(ALL[name], plan)
    older, newer = inputs(plan)
    values = {
        0: bring(older, made.inputs.older, plan.after_reduction),
        1: bring(newer, made.inputs.newer, False),
    }
    edges = ALL[name].reduction if plan.reduction else ALL[name].normal
    for node in (2, 3, 4, 5):
        arriving = []
        for position, (end, source, operation) in enumerate(edges):
            if end == node:
                stride = 2 if plan.reduction and source in (0, 1) else 1
                arriving.append(operate_directly(operation, stride, made.operations[position], values[source]))
        values[node] = arriving[0]
        for more in arriving[1:]:
            values[node] = values[node] + more
    with torch.no_grad():
        assert torch.equal(made(older, newer), torch.cat([values[2], values[3], values[4], values[5]], dim=1))


def test_frozen_unit_never_trains() -> None:
    """Neither train() on the model around it, nor a training step, nor a forward pass changes a frozen unit."""
    plan = PLANS[0]
    frozen, free = unit(GENOTYPES["darts_v1"], plan), unit(GENOTYPES["darts_v1"], plan)
    frozen.train().freeze()
    model = nn.ModuleList([frozen, free]).train()
    assert not any(module.training for module in frozen.modules())
    assert all(module.training for module in free.modules())
    before = weights(frozen), weights(free)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    for _ in range(2):
        older, newer = inputs(plan)
        optimizer.zero_grad()
        (frozen(older, newer) + free(older, newer)).square().mean().backward()
        optimizer.step()
    assert all(parameter.grad is None and not parameter.requires_grad for parameter in frozen.parameters())
    assert same(weights(frozen), before[0])
    assert not same(weights(free), before[1])
    assert not frozen.train(True).training and frozen.frozen and not Unit().frozen


def test_proxy_network_is_stem_cells_mean_and_head() -> None:
    """Cells are fed by the two before; the first by the stem twice; both cell kinds use their own sample."""
    network = ProxyNetwork(image_shape(), 3, 3, 2, CellSpace())
    unsettled(network)
    sample = [4] * 14 + [3] * 14
    x = torch.randn(4, 1, 8, 8)
    with torch.no_grad():
        stem = network.stem(x)
        first = network.cells[0](stem, stem, sample)
        second = network.cells[1](stem, first, sample)
        third = network.cells[2](first, second, sample)
        expected = functional.linear(third.mean(dim=(2, 3)), network.head.weight, network.head.bias)
        torch.testing.assert_close(network(x, sample), expected)
        assert not torch.equal(network(x, [3] * 28), network(x, sample))
        assert not torch.equal(network(x, [4] * 28), network(x, sample))


#: Every operation is on some edge of each form, and the forms differ.
EVERYTHING = Genotype(
    tuple(Edge(*edge, OPERATIONS[row % 8]) for row, edge in enumerate(EDGES)),
    tuple(Edge(*edge, OPERATIONS[(3 * row + 1) % 8]) for row, edge in enumerate(EDGES)),
)
FOUND = {**GENOTYPES, "everything": EVERYTHING}


def proxy(seed: int = 0) -> ProxyNetwork:
    torch.manual_seed(seed)
    network = ProxyNetwork(image_shape(), 3, 3, 2, CellSpace())
    unsettled(network)
    return network


def images(count: int = 4, seed: int = 1) -> Tensor:
    return torch.randn(count, 1, 8, 8, generator=torch.Generator().manual_seed(seed))


def one_hot(operations: Sequence[int]) -> Tensor:
    return nn.functional.one_hot(torch.tensor(operations), len(OPERATIONS)).float()


@pytest.mark.parametrize("plan", cell_plans(4, 2), ids=lambda plan: f"{plan.kind}-{plan.channels}")
def test_mixture_is_the_weighted_sum(plan: CellPlan) -> None:
    """A mixed cell equals its graph written out: per edge the sum over all eight operations times their weights."""
    cell = ProxyCell(plan, CellSpace())
    unsettled(cell)
    older, newer = inputs(plan)
    weight = torch.rand(14, 8) - 0.3
    values = [bring(older, cell.inputs.older, plan.after_reduction), bring(newer, cell.inputs.newer, False)]
    for node in (2, 3, 4, 5):
        total = torch.zeros(())
        for row, (end, source) in enumerate(EDGES):
            stride = 2 if plan.reduction and source < 2 else 1
            for index, name in enumerate(OPERATIONS):
                if end == node:
                    operation = cell.edges[row][index]
                    value = operate_directly(name, stride, operation, values[source])
                    value = norm(value, operation[1]) if "pool" in name else value
                    total = total + weight[row, index] * value
        values.append(total)
    with torch.no_grad():
        torch.testing.assert_close(cell(older, newer, list(weight) * 2), torch.cat(values[2:], dim=1))


@pytest.mark.parametrize("name", ["darts_v1", "mdenas_pmnist", "everything"])
@pytest.mark.parametrize("reduce_norm", [True, False])
@pytest.mark.parametrize("cells", [3, 4])
def test_genotype_network_is_a_super_model_of_one_column(name: str, reduce_norm: bool, cells: int) -> None:
    """With the same weights it computes what a super model with one task does, in training and evaluation mode."""
    space = CellSpace(factorized_reduce_norm=reduce_norm)
    model = super_model((3,), cells, 2, space=space, image_channels=1)
    model.expand(FOUND[name], 0)
    model.keep(0, [0] * (cells + 1))
    unsettled(model)
    network = GenotypeNetwork(FOUND[name], image_shape(), 3, cells, 2, space)
    # Layer 0 is the stem, layer i the cell before it in the network's count, and there is one unit in each.
    renamed = {
        "stem" + key.removeprefix("layers.0.0")
        if key.startswith("layers.0.0.")
        else f"cells.{int(key.split('.')[1]) - 1}.{key.split('.', 3)[3]}"
        if key.startswith("layers.")
        else "head" + key.removeprefix("heads.0"): tensor
        for key, tensor in model.state_dict().items()
    }
    network.load_state_dict(renamed)
    for training in (False, True):
        model.train(training)
        network.train(training)
        with torch.no_grad():
            expected = model.forward_single_task(images(), 0)
            assert torch.equal(network(images()), expected)
        assert expected.abs().max() > 1e-3 and expected.shape == (4, 3)


def images_operations(channels: int = 4, size: tuple[int, int] = (8, 8), seed: int = 0) -> Tensor:
    return torch.randn(3, channels, *size, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("channels", [1, 4, 36])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("name", OPERATIONS)
def test_parameters(name: str, stride: int, channels: int) -> None:
    """Modules have as many parameters as the closed form says, and the closed form says what the specification does."""
    c = channels
    expected = {
        "sep_conv_3x3": 18 * c + 2 * c * c + 4 * c,
        "sep_conv_5x5": 50 * c + 2 * c * c + 4 * c,
        "dil_conv_3x3": 9 * c + c * c + 2 * c,
        "dil_conv_5x5": 25 * c + c * c + 2 * c,
        "skip_connect": c * c + 2 * c if stride == 2 else 0,
    }.get(name, 0)
    assert operation_parameters(name, channels, stride) == expected
    if channels > 1:
        assert count_parameters(make_operation(name, channels, stride, affine=True)) == expected


@pytest.mark.parametrize("size", [(8, 8), (6, 4)])
@pytest.mark.parametrize("apply", [True, False])
def test_factorized_reduce(apply: bool, size: tuple[int, int]) -> None:
    """Two stride-2 1x1 convolutions, the second shifted by a pixel on both axes, then the norm, unless it is off."""
    module = FactorizedReduce(6, 4, affine=True, norm=apply)
    unsettled(module)
    x = images_operations(6, size)
    rectified = functional.relu(x)
    even = conv(rectified, module.even, stride=2)
    odd = conv(rectified[:, :, 1:, 1:], module.odd, stride=2)
    expected = torch.cat([even, odd], dim=1)
    # Not bit by bit: the module picks pixels first and runs another kernel (see FactorizedReduce).
    torch.testing.assert_close(module(x), norm(expected, module.norm) if apply else expected)
    # Pixel by pixel, without any convolution of torch's.
    y = torch.einsum("oc,nchw->nohw", module.odd.weight[:, :, 0, 0], rectified[:, :, 1::2, 1::2])
    torch.testing.assert_close(odd, y)
    # The norm is there and counted either way.
    assert count_parameters(module) == 6 * 4 + 2 * 4


SWEEP = """
import torch
from seu_bench_kit.cells import make_operation
from seu_bench_kit.genotypes import OPERATIONS

torch.manual_seed(0)
torch.set_num_threads(1)
for channels in (2, 3, 4, 5, 6, 7, 8, 12):
    for size in (4, 7, 8, 14):
        for name in OPERATIONS[1:]:  # none passes no gradient back
            for stride in (1, 2):
                module = make_operation(name, channels, stride, affine=True, pool_norm=True)
                images = torch.randn(4, channels, size, size)
                outcomes = []
                for layout in (torch.contiguous_format, torch.channels_last):
                    x = images.clone(memory_format=layout).requires_grad_()
                    module.zero_grad()
                    y = module(x)
                    # Weighted: the plain sum of a normalised output does not depend on what came before.
                    (y * torch.linspace(-1, 1, y.numel()).view_as(y).contiguous()).sum().backward()
                    grads = [torch.zeros(()) if x.grad is None else x.grad]
                    grads += [p.grad.clone() for p in module.parameters() if p.grad is not None]
                    outcomes.append(grads)
                plain, last = (torch.cat([grad.flatten() for grad in grads]) for grads in outcomes)
                # Of the whole gradient: single entries that normalisation cancels are rounding and nothing else.
                assert float((last - plain).norm()) <= 1e-4 * float(plain.norm()), (name, channels, stride, size)
                for _ in range(8):
                    x = images.clone(memory_format=torch.channels_last).requires_grad_()
                    module(x).sum().backward()
print("whole")
"""


@pytest.mark.long
def test_operations_leave_memory_whole() -> None:
    """Both layouts give the same gradients, and the process survives."""
    done = subprocess.run([sys.executable, "-c", SWEEP], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "whole"


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kernel", [3, 5])
def test_separable(kernel: int, stride: int) -> None:
    """Twice ReLU, depthwise, pointwise, norm; only the first time with the stride."""
    module = make_operation(f"sep_conv_{kernel}x{kernel}", 4, stride, affine=True)
    unsettled(module)
    assert isinstance(module, nn.Sequential)
    parts = [part for part in module if not isinstance(part, nn.ReLU)]
    x = images_operations()
    y = conv(functional.relu(x), parts[0], stride, kernel // 2)
    y = norm(conv(y, parts[1]), parts[2])
    y = conv(functional.relu(y), parts[3], 1, kernel // 2)
    y = norm(conv(y, parts[4]), parts[5])
    assert torch.equal(module(x), y)
    assert parts[0].weight.shape == (4, 1, kernel, kernel) and parts[1].weight.shape == (4, 4, 1, 1)
