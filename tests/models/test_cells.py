"""A unit computes the graph of its genotype, a frozen one never changes, the proxy computes what is sampled only."""

from __future__ import annotations

import pytest
import torch
from support.direct import bring, inputs, operate_directly, unsettled
from support.tiny import all_threads, one_thread, same, weights
from torch import Tensor, nn
from torch.nn import functional

from seu_bench_kit.cells import ExtensionUnit, ProxyNetwork, Unit
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


# --- the proxy network --------------------------------------------------------------------------------------------


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
