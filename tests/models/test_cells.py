"""A unit computes the graph of its genotype, a frozen one never changes, the proxy computes what is sampled only."""

from __future__ import annotations

import pytest
import torch
from support.direct import bring, conv, inputs, norm, operate_directly, unsettled
from support.tiny import all_threads, one_thread, same, weights
from torch import Tensor, nn
from torch.nn import functional

from seu_bench_kit.cells import ExtensionUnit, ProxyCell, ProxyNetwork, Stem, Unit
from seu_bench_kit.search_space import (
    EDGES,
    GENOTYPES,
    OPERATIONS,
    CellPlan,
    Genotype,
    SearchSpace,
    cell_plans,
    uniform_genotype,
)

setup_module, teardown_module = one_thread, all_threads

PLANS = cell_plans(6, 2)
MIXED = Genotype.from_dict(
    {
        kind: [[node, source, OPERATIONS[(3 * node + 5 * source + shift) % 8]] for node, source in EDGES]
        for kind, shift in (("normal", 0), ("reduction", 3))
    }
)
ALL = {**GENOTYPES, "mixed": MIXED, "none": uniform_genotype("none"), "sep5": uniform_genotype("sep_conv_5x5")}


def unit(genotype: Genotype, plan: CellPlan, space: SearchSpace | None = None) -> ExtensionUnit:
    torch.manual_seed(0)
    made = ExtensionUnit(genotype, plan, space or SearchSpace())
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


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("name", ["darts_v1", "mdenas_mixture", "mixed", "sep5"])
def test_shared_parts_change_no_gradient(name: str, layout: torch.memory_format) -> None:
    """A unit trains as if each operation rectified its input by itself and torch joined the nodes."""
    for plan in PLANS:
        made = unit(ALL[name], plan).train()

        def unshared(older: Tensor, newer: Tensor, made: ExtensionUnit = made) -> Tensor:
            states = [made.inputs.older(older), made.inputs.newer(newer)]
            for node in (2, 3, 4, 5):
                incoming = [
                    operation(states[edge.source])
                    for edge, operation in zip(made.edges, made.operations, strict=True)
                    if edge.node == node
                ]
                states.append(sum(incoming[1:], incoming[0]))
            return torch.cat(states[2:], dim=1)

        outcomes = []
        for compute in (made, unshared):
            made.zero_grad()
            older, newer = (x.contiguous(memory_format=layout).requires_grad_() for x in inputs(plan))
            y = compute(older, newer)
            (y * torch.linspace(-1, 1, y.numel()).view(y.shape)).sum().backward()
            grads = [older.grad, newer.grad, *(parameter.grad for parameter in made.parameters())]
            outcomes.append((y.detach(), torch.cat([grad.flatten() for grad in grads if grad is not None])))
        (y, gradient), (expected_y, expected) = outcomes
        assert torch.equal(y, expected_y)
        # BatchNorm sums another way where the gradient that reaches it is dense.
        assert float((gradient - expected).norm()) <= 1e-5 * float(expected.norm())


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: f"{plan.kind}-{plan.channels}-{plan.after_reduction}")
def test_units_of_a_layer_are_interchangeable(plan: CellPlan) -> None:
    """Units of a layer take and give the same shapes for every genotype; the sizes may be odd."""
    for size in (8, 5):
        older, newer = inputs(plan, size)
        if plan.after_reduction and size == 5:
            older = older[:, :, :-1, :-1]
        half = -(-size // 2) if plan.reduction else size
        for genotype in ALL.values():
            assert unit(genotype, plan)(older, newer).shape == (3, 4 * plan.channels, half, half)


def test_reduction_norm_is_an_option_of_the_space() -> None:
    """The norm of FactorizedReduce is applied or skipped in the preprocessing and on stride-2 skips alike."""
    plan = cell_plans(4, 2)[2]
    with_norm = unit(uniform_genotype("skip_connect"), plan)
    without = unit(uniform_genotype("skip_connect"), plan, SearchSpace(factorized_reduce_norm=False))
    flags = [module.apply_norm for module in without.modules() if hasattr(module, "apply_norm")]
    assert flags == [False] * 9
    assert [module.apply_norm for module in with_norm.modules() if hasattr(module, "apply_norm")] == [True] * 9
    assert with_norm.state_dict().keys() == without.state_dict().keys()
    older, newer = inputs(plan)
    assert not torch.equal(with_norm(older, newer), without(older, newer))


def test_stem() -> None:
    """A 3x3 convolution to 3C channels and a norm, no activation."""
    torch.manual_seed(0)
    stem = Stem(3, 4)
    unsettled(stem)
    x = torch.randn(2, 3, 8, 8)
    assert torch.equal(stem(x), norm(conv(x, stem.conv, 1, 1), stem.norm))
    assert stem(x).shape == (2, 12, 8, 8) and bool((stem(x) < 0).any())


# --- frozen units -------------------------------------------------------------------------------------------------


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


def test_gradients_pass_through_a_frozen_unit() -> None:
    """Layers before a frozen unit can still learn."""
    made = unit(GENOTYPES["darts_v1"], PLANS[0])
    made.freeze()
    older, newer = (x.requires_grad_() for x in inputs(PLANS[0]))
    made(older, newer).square().sum().backward()
    assert older.grad is not None and bool(older.grad.any()) and newer.grad is not None and bool(newer.grad.any())


# --- the proxy network --------------------------------------------------------------------------------------------


def test_proxy_computes_the_sample_only() -> None:
    """Operations that were not sampled get no gradient and keep their statistics; the sampled ones get both."""
    torch.manual_seed(0)
    network = ProxyNetwork(1, 3, 4, 2, SearchSpace()).train()
    normal = [(row + 4) % 8 for row in range(14)]
    reduction = [(3 * row + 1) % 8 for row in range(14)]
    before = weights(network)
    x = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    network(x, (normal, reduction)).square().sum().backward()
    touched = 0
    for cell, plan in zip(network.cells, cell_plans(4, 2), strict=True):
        chosen = reduction if plan.reduction else normal
        for row, operations in enumerate(cell.edges):
            for index, operation in enumerate(operations):
                sampled = index == chosen[row]
                for parameter in operation.parameters():
                    assert (parameter.grad is not None) == sampled
                    touched += sampled
    assert touched > 0
    changed = {name for name, tensor in network.state_dict().items() if not torch.equal(tensor, before[name])}
    for name in changed:
        if ".edges." in name:
            _, cell, _, row, index, *_ = name.split(".")
            kind = reduction if cell_plans(4, 2)[int(cell)].reduction else normal
            assert int(index) == kind[int(row)]
    assert any(".edges." in name for name in changed)


@pytest.mark.parametrize("plan", cell_plans(4, 2), ids=lambda plan: f"{plan.kind}-{plan.channels}")
def test_proxy_cell_sums_all_edges(plan: CellPlan) -> None:
    """Each node is the sum over all its incoming edges, not over two of them."""
    torch.manual_seed(0)
    cell = ProxyCell(plan, SearchSpace())
    unsettled(cell)
    older, newer = inputs(plan)
    chosen = [(5 * row + 2) % 8 for row in range(14)]
    values = [bring(older, cell.inputs.older, plan.after_reduction), bring(newer, cell.inputs.newer, False)]
    row = 0
    for node in (2, 3, 4, 5):
        arriving = []
        for source in range(node):
            name = OPERATIONS[chosen[row]]
            stride = 2 if plan.reduction and source < 2 else 1
            operation = cell.edges[row][chosen[row]]
            value = operate_directly(name, stride, operation, values[source])
            if "pool" in name:
                value = norm(value, operation[1])
            arriving.append(value)
            row += 1
        total = arriving[0]
        for more in arriving[1:]:
            total = total + more
        values.append(total)
    with torch.no_grad():
        assert torch.equal(cell(older, newer, chosen), torch.cat(values[2:], dim=1))


def test_proxy_network_is_stem_cells_mean_and_head() -> None:
    """Cells are fed by the two before; the first by the stem twice; both cell kinds use their own sample."""
    torch.manual_seed(0)
    network = ProxyNetwork(1, 3, 3, 2, SearchSpace())
    unsettled(network)
    sample = ([4] * 14, [3] * 14)
    x = torch.randn(4, 1, 8, 8)
    with torch.no_grad():
        stem = network.stem(x)
        first = network.cells[0](stem, stem, sample[0])
        second = network.cells[1](stem, first, sample[1])
        third = network.cells[2](first, second, sample[1])
        expected = functional.linear(third.mean(dim=(2, 3)), network.head.weight, network.head.bias)
        torch.testing.assert_close(network(x, sample), expected)
        assert not torch.equal(network(x, (sample[1], sample[1])), network(x, sample))
        assert not torch.equal(network(x, (sample[0], sample[0])), network(x, sample))
