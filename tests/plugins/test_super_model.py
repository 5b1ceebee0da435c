"""The super model grows, keeps what was chosen, freezes it, and computes earlier tasks by the same bits for ever."""

from __future__ import annotations

import json

import pytest
import torch
from support.tiny import (
    all_threads,
    genotype,
    one_thread,
    same,
    super_model,
    weights,
)
from torch import Tensor
from torch.nn import functional

from seu_bench_kit.search_space import uniform_genotype
from seu_bench_seu.super_model import SuperModel

setup_module, teardown_module = one_thread, all_threads

DARTS, MIXTURE, POOLS = genotype(), genotype("mdenas_mixture"), uniform_genotype("max_pool_3x3")


def images(count: int = 4, channels: int = 1) -> Tensor:
    return torch.randn(count, channels, 8, 8, generator=torch.Generator().manual_seed(0))


def grown() -> SuperModel:
    """Two tasks learned by name: the second took new units at layers 1 and 3, old ones elsewhere."""
    model = super_model()
    model.expand(DARTS, 0)
    model.keep(0, [0, 0, 0, 0])
    model.freeze()
    model.expand(MIXTURE, 1)
    model.keep(1, [0, 1, 0, 1])
    model.freeze()
    return model


def test_expand_adds_one_unit_per_layer() -> None:
    """Every layer gets one new, trainable unit, which remembers its task and its genotype."""
    model = super_model()
    model.expand(DARTS, 0)
    assert model.candidates == [1, 1, 1, 1] and model.has_new == [True] * 4
    model.keep(0, [0, 0, 0, 0])
    assert model.has_new == [True] * 4
    model.freeze()
    assert model.has_new == [False] * 4
    model.expand(MIXTURE, 1)
    assert model.candidates == [2, 2, 2, 2] and model.has_new == [True] * 4
    assert model.unit_tasks == [[0, 1]] * 4
    assert model.unit_genotypes == [[DARTS, MIXTURE]] * 4
    assert [layer[1].edges for layer in model.layers[1:]] == [MIXTURE.normal, MIXTURE.reduction, MIXTURE.reduction]


def test_keep_deletes_what_was_not_chosen() -> None:
    """New units off the path go; every other unit keeps its index and its weights."""
    model = super_model()
    model.expand(DARTS, 0)
    model.keep(0, [0, 0, 0, 0])
    model.freeze()
    model.expand(MIXTURE, 1)
    units = [list(layer) for layer in model.layers]
    model.keep(1, [0, 1, 0, 1])
    assert model.candidates == [1, 2, 1, 2]
    assert model.unit_tasks == [[0], [0, 1], [0], [0, 1]]
    assert model.unit_genotypes == [[DARTS], [DARTS, MIXTURE], [DARTS], [DARTS, MIXTURE]]
    for layer, before in zip(model.layers, units, strict=True):
        assert list(layer) == before[: len(layer)]
    assert model.paths == {0: (0, 0, 0, 0), 1: (0, 1, 0, 1)}
    assert model.has_new == [False, True, False, True]


@pytest.mark.parametrize("path", [[0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 2], [0, -1, 0, 0], []])
def test_paths_must_fit(path: list[int]) -> None:
    """A path of the wrong length or to a unit that is not there is refused and changes nothing."""
    model = grown()
    with pytest.raises(ValueError, match="does not fit layers"):
        model.set_path(1, path)
    with pytest.raises(ValueError, match="does not fit layers"):
        model.keep(1, path)
    assert model.paths[1] == (0, 1, 0, 1) and model.candidates == [1, 2, 1, 2]


def test_forward_is_the_units_on_the_path() -> None:
    """Stem, cells fed by the two layers before, mean over the image, the task's head."""
    model = grown().eval()
    x = images()
    for task in (0, 1):
        units = [layer[index] for layer, index in zip(model.layers, model.paths[task], strict=True)]
        with torch.no_grad():
            stem = units[0](x.contiguous(memory_format=torch.channels_last))
            first = units[1](stem, stem)
            second = units[2](stem, first)
            third = units[3](first, second)
            head = model.heads[task]
            expected = functional.linear(third.mean(dim=(2, 3)), head.weight, head.bias)
            assert torch.equal(model.forward_single_task(x, task), expected)
    assert model(x, 0).shape == (4, 2) and model(x, 1).shape == (4, 3)


def test_freeze_and_what_trains() -> None:
    """New units on the path and the task's head train; frozen units and other heads do not."""
    model = grown()
    model.expand(POOLS, 2)
    model.set_path(2, [1, 0, 0, 2])
    expected = {id(p) for layer, index in ((0, 1), (3, 2)) for p in model.layers[layer][index].parameters()}
    expected |= {id(p) for p in model.heads[2].parameters()}
    assert {id(p) for p in model.trainable_module(2).parameters()} == expected
    assert all(p.requires_grad for p in model.trainable_module(2).parameters())
    everything_new = {id(p) for layer in model.layers for p in layer[-1].parameters()}
    everything_new |= {id(p) for p in model.heads[2].parameters()}
    assert {id(p) for p in model.new_units(2).parameters()} == everything_new
    model.train()(images(), 2).square().sum().backward()
    touched = {id(p) for p in model.parameters() if p.grad is not None}
    assert touched == expected
    frozen = [unit for layer in model.layers for unit in layer if unit.frozen]
    assert len(frozen) == 6 and not any(module.training for unit in frozen for module in unit.modules())


def test_renew() -> None:
    """New units on the path get fresh weights of the same genotype; frozen units and others keep theirs."""
    model = grown()
    model.expand(POOLS, 2)
    model.keep(2, [1, 0, 0, 2])
    before = weights(model)
    torch.manual_seed(7)
    model.renew(2)
    after = weights(model)
    assert before.keys() == after.keys()
    renewed = {name for name in before if not torch.equal(before[name], after[name])}
    assert {tuple(name.split(".")[1:3]) for name in renewed} == {("0", "1"), ("3", "2")}
    assert model.layers[3][2].edges == POOLS.reduction and model.unit_tasks[3] == [0, 1, 2]
    torch.manual_seed(7)
    model.renew(2)
    assert same(weights(model), after)
    assert model.has_new == [True, False, False, True]


def test_grows_to_an_architecture() -> None:
    """A new super model gets units, paths and frozen units; with the weights it computes the same."""
    model = grown()
    model.expand(DARTS, 2)
    again = super_model()
    again.load_architecture(json.loads(json.dumps(model.architecture())))
    again.load_state_dict(model.state_dict())
    assert again.architecture() == model.architecture()
    assert again.unit(1, 1).frozen and not again.unit(1, 2).frozen
    frozen = [name for name, weight in again.named_parameters() if not weight.requires_grad]
    assert frozen == [name for name, weight in model.named_parameters() if not weight.requires_grad] != []
    x = torch.randn(3, 1, 8, 8)
    for task in (0, 1):
        assert torch.equal(again.eval().forward_single_task(x, task), model.eval().forward_single_task(x, task))
    with pytest.raises(ValueError, match="empty"):
        again.load_architecture(model.architecture())
    with pytest.raises(ValueError, match="layers"):
        super_model(cells=4).load_architecture(model.architecture())


# --- learned by the real strategy ---------------------------------------------------------------------------------
