"""PathNet's network: what a path computes, what is frozen, what is drawn anew, masks and architectures."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.plugins.pathnet import FIRST, SECOND, images, network
from support.tiny import all_threads, one_thread, same, weights
from torch import Tensor, nn
from torch.nn import functional

from seu_bench.models import count_parameters, is_frozen
from seu_bench_kit import unpack_bits
from seu_bench_pathnet.network import ModularNetwork, Path

setup_module, teardown_module = one_thread, all_threads

EVERYWHERE = [(layer, index) for layer in range(5) for index in range(4)]


def learned(*paths: Path) -> ModularNetwork:
    """A network that kept these paths."""
    model = network()
    for task, path in enumerate(paths):
        model.try_path(task, path)
        model.keep(task)
    return model


def on(*paths: Path) -> set[tuple[int, int]]:
    """The places of modules on any of the paths."""
    return {(layer, index) for path in paths for layer, used in enumerate(path) for index in used}


def by_hand(model: Any, x: Tensor, path: Path, task: int) -> Tensor:
    """Logits by the formula, each layer written out."""
    for layer, used in enumerate(path):
        x = x.flatten(1) if layer == 3 else x
        outputs = []
        for index in sorted(set(used)):
            module = model.layers[layer][index]
            if layer < 3:
                out = functional.relu(functional.conv2d(x, module.weight, module.bias, padding=1))
                outputs.append(functional.max_pool2d(out, 2))
            else:
                outputs.append(functional.relu(functional.linear(x, module.weight, module.bias)))
        x = torch.stack(outputs).sum(dim=0)
    return functional.linear(x, model.heads[task].weight, model.heads[task].bias)


@pytest.mark.parametrize("path", [FIRST, SECOND])
def test_logits_are_those_of_the_formula(path: Path) -> None:
    """Sums of what each module of the path computes behind its activation, one that is named twice once."""
    model, x = network().double(), images().store.double()
    model.try_path(1, path)
    torch.testing.assert_close(model(x, 1), by_hand(model, x, path, 1))


def test_what_trains() -> None:
    """The modules of the path that no task kept, and the head; any free module may be on a path of the next task."""
    model = learned(FIRST)
    model.try_path(1, SECOND)
    assert {place for place in EVERYWHERE if is_frozen(model.module_at(*place))} == on(FIRST)
    assert is_frozen(model.heads[0]) and not is_frozen(model.heads[1])
    new = [model.module_at(*place) for place in sorted(on(SECOND) - on(FIRST))]
    assert {*model.trainable_module(1).parameters()} == {*nn.ModuleList([*new, model.heads[1]]).parameters()}
    free = [model.module_at(*place) for place in EVERYWHERE if place not in on(FIRST)]
    assert {*model.free_module(1).parameters()} == {*nn.ModuleList([*free, model.heads[1]]).parameters()}
    path = [model.module_at(*place) for place in sorted(on(SECOND))]
    assert count_parameters(model.task_module(1)) == count_parameters(*path, model.heads[1])


def test_renewal_skips_what_is_frozen() -> None:
    """Every other module gets weights that the seed decides; heads stay."""
    model, other = learned(FIRST), learned(FIRST)
    before, heads = [weights(model.module_at(*place)) for place in EVERYWHERE], weights(model.heads)
    for each in (model, other):
        torch.manual_seed(7)
        each.renew()
    assert same(weights(model), weights(other))
    for place, old in zip(EVERYWHERE, before, strict=True):
        now = weights(model.module_at(*place))
        if place in on(FIRST):
            assert same(now, old)
        else:
            assert not any(torch.equal(now[name], old[name]) for name in old), place
    assert same(weights(model.heads), heads)


def test_masks() -> None:
    """A bit for each module of each layer and each task, of which those on the path are set."""
    model = learned(FIRST, SECOND)
    assert model.mask_bits == 2 * 5 * 4 and model.masks.shape == (2, 3) and model.masks.dtype == torch.uint8
    for task, path in enumerate((FIRST, SECOND)):
        bits = unpack_bits(model.masks[task], (5, 4))
        assert {(int(layer), int(index)) for layer, index in bits.nonzero()} == on(path)
    assert network().mask_bits == 0 and network().masks.shape == (0, 3)
