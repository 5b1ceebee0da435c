"""The mixture of a proxy network is its weighted sum, and a genotype's network is a super model of one column."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from support.direct import bring, inputs, norm, operate_directly, unsettled
from support.tiny import all_threads, one_thread, same, super_model, weights
from torch import Tensor, nn

from seu_bench_kit.cells import GenotypeNetwork, ProxyCell, ProxyNetwork, sample_of
from seu_bench_kit.search_space import (
    EDGES,
    GENOTYPES,
    OPERATIONS,
    CellPlan,
    Edge,
    Genotype,
    SearchSpace,
    cell_plans,
)

setup_module, teardown_module = one_thread, all_threads

#: Every operation is on some edge of each form, and the forms differ.
EVERYTHING = Genotype(
    tuple(Edge(*edge, OPERATIONS[row % 8]) for row, edge in enumerate(EDGES)),
    tuple(Edge(*edge, OPERATIONS[(3 * row + 1) % 8]) for row, edge in enumerate(EDGES)),
)
FOUND = {**GENOTYPES, "everything": EVERYTHING}


def proxy(seed: int = 0) -> ProxyNetwork:
    torch.manual_seed(seed)
    network = ProxyNetwork(1, 3, 3, 2, SearchSpace())
    unsettled(network)
    return network


def images(count: int = 4, seed: int = 1) -> Tensor:
    return torch.randn(count, 1, 8, 8, generator=torch.Generator().manual_seed(seed))


def one_hot(operations: Sequence[int]) -> Tensor:
    return nn.functional.one_hot(torch.tensor(operations), len(OPERATIONS)).float()


# --- the mixture --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [0, 3, 6])
def test_certain_mixture_is_the_sample(shift: int) -> None:
    """With all weight on one operation per edge the mixture is what is computed if that operation is sampled."""
    network = proxy()
    sample = ([(row + shift) % 8 for row in range(14)], [(3 * row + 2 + shift) % 8 for row in range(14)])
    weighted = (one_hot(sample[0]), one_hot(sample[1]))
    with torch.no_grad():
        expected = network(images(), sample)
        torch.testing.assert_close(network.mixture(images(), weighted), expected, rtol=1e-6, atol=1e-6)
        swapped = network.mixture(images(), (weighted[1], weighted[0]))
    assert (swapped - expected).abs().max() > 1e-3


@pytest.mark.parametrize("plan", cell_plans(4, 2), ids=lambda plan: f"{plan.kind}-{plan.channels}")
def test_mixture_is_the_weighted_sum(plan: CellPlan) -> None:
    """A mixed cell equals its graph written out: per edge the sum over all eight operations times their weights."""
    torch.manual_seed(0)
    cell = ProxyCell(plan, SearchSpace())
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
        torch.testing.assert_close(cell.mixture(older, newer, weight), torch.cat(values[2:], dim=1))


def test_gradients_reach_every_weight() -> None:
    """Through the softmax the loss depends on every operation of every edge, ``none`` included."""
    network = proxy()
    logits = [torch.zeros(14, 8, requires_grad=True) for _ in range(2)]
    mixture = (logits[0].softmax(dim=1), logits[1].softmax(dim=1))
    nn.functional.cross_entropy(network.mixture(images(), mixture), torch.tensor([0, 1, 2, 0])).backward()
    for table in logits:
        assert table.grad is not None and bool((table.grad != 0).all())
        # More weight on one operation is taken from the others of its edge.
        torch.testing.assert_close(table.grad.sum(dim=1), torch.zeros(14), rtol=0, atol=1e-6)


# --- the sample of a genotype -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["darts_v2", "mdenas_mixture", "everything"])
def test_proxy_computes_the_genotype_only(name: str) -> None:
    """With the sample of a genotype exactly its operations get gradients and statistics, in each kind of cell."""
    found = FOUND[name]
    network = proxy().train()
    before = weights(network)
    network(images(), sample_of(found)).square().sum().backward()
    normed = ("pool", "sep", "dil")
    for cell in network.cells:
        form = found.reduction if cell.plan.reduction else found.normal
        for row, operations in enumerate(cell.edges):
            for index, operation in enumerate(operations):
                used = (*EDGES[row], OPERATIONS[index]) in {tuple(edge) for edge in form}
                assert all((parameter.grad is not None) == used for parameter in operation.parameters())
                if OPERATIONS[index].startswith(normed):
                    counts = [
                        m.num_batches_tracked.item() for m in operation.modules() if isinstance(m, nn.BatchNorm2d)
                    ]
                    assert counts == [int(used)] * len(counts) and counts
    assert not same(weights(network), before)


# --- the network of a genotype ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["darts_v1", "mdenas_pmnist", "everything"])
@pytest.mark.parametrize("reduce_norm", [True, False])
@pytest.mark.parametrize("cells", [3, 4])
def test_genotype_network_is_a_super_model_of_one_column(name: str, reduce_norm: bool, cells: int) -> None:
    """With the same weights it computes what a super model with one task does, in training and evaluation mode."""
    space = SearchSpace(factorized_reduce_norm=reduce_norm)
    model = super_model((3,), cells, 2, space=space, image_channels=1)
    model.expand(FOUND[name], 0)
    model.keep(0, [0] * (cells + 1))
    unsettled(model)
    network = GenotypeNetwork(FOUND[name], 1, 3, cells, 2, space)
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
