"""The guard's checks of a super model: paths, and everything that earlier tasks are computed by."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
import pytest
import torch
from support.tiny import all_threads, genotype, one_thread, super_model
from torch import Tensor

from seu_bench_seu.super_model import SuperModel

setup_module, teardown_module = one_thread, all_threads


def grown() -> SuperModel:
    """Two tasks were learned, and units for the third are new: layers of 2, 3, 2 and 3 units."""
    model = super_model()
    for task, path in enumerate([(0, 0, 0, 0), (0, 1, 0, 1)]):
        model.expand(genotype("mdenas_mixture" if task else "darts_v1"), task)
        model.keep(task, path)
        model.freeze()
    model.expand(genotype(), 2)
    return model


@pytest.mark.parametrize(
    "path",
    [
        (0, 0, 0, 0),
        [1, 2, 1, 2],
        [np.int64(1), 2, np.int32(0), 0],
        list(torch.tensor([1, 2, 0, 0])),
    ],
)
def test_paths_that_fit(path: Any) -> None:
    """Whole numbers of whatever type, one for each layer; they are kept as Python's."""
    model = grown()
    assert model.path_fault(path) is None
    model.set_path(2, path)
    assert model.paths[2] == tuple(int(index) for index in path)
    assert all(type(index) is int for index in model.paths[2])


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ((0, 0, 0), r"path (0, 0, 0) does not fit layers of [2, 3, 2, 3] units"),
        ((0,) * 5, "path (0, 0, 0, 0, 0) does not fit"),
        ((), "path () does not fit"),
        ((2, 0, 0, 0), "path (2, 0, 0, 0) does not fit"),
        ((0, 0, 0, -1), "path (0, 0, 0, -1) does not fit"),
        ((0, 0, 0, 10**30), "does not fit"),
        ((0.0, 0, 0, 0), "(0.0, 0, 0, 0) is no path"),
        ((math.nan, 0, 0, 0), "(nan, 0, 0, 0) is no path"),
        ((np.float64(0), 0, 0, 0), "is no path"),
        (("0", 0, 0, 0), "('0', 0, 0, 0) is no path"),
        ((None, 0, 0, 0), "is no path"),
        ("0000", "'0000' is no path"),
        (None, "None is no path"),
        ({0: 0, 1: 0, 2: 0, 3: 0}, "is no path"),
        ({0, 1}, "is no path"),
        (7, "7 is no path"),
        (iter((0, 0, 0, 0)), "is no path"),
        (np.zeros(4, dtype=int), "is no path"),
        ([torch.tensor(0.5)] * 4, "is no path"),
    ],
)
def test_paths_that_do_not_fit(path: Any, said: str) -> None:
    """The fault is named, and nothing is changed."""
    model = grown()
    assert said in (model.path_fault(path) or "nothing")
    with pytest.raises(ValueError, match="path"):
        model.set_path(2, path)
    assert dict(model.paths) == {0: (0, 0, 0, 0), 1: (0, 1, 0, 1)}


def frozen_tensors(model: SuperModel) -> dict[str, Tensor]:
    """Units and heads by which two tasks are computed, found by hand."""
    layers: Any = model.layers
    found = {
        f"unit {index} of layer {layer} ({name})": tensor
        for layer, units in enumerate(layers)
        for index, unit in enumerate(units)
        if model.unit_tasks[layer][index] < 2
        for name, tensor in unit.state_dict().items()
    }
    for task in (0, 1):
        found |= {f"the head of task {task} ({name})": t for name, t in model.heads[task].state_dict().items()}
    return found


def test_frozen_state() -> None:
    """Checksums of old units with their statistics, of learned heads and of paths; of nothing else. No weight is copied
    for it."""
    model = grown()
    state = model.frozen_state()
    tensors = dict(frozen_tensors(model))
    tensors |= {"the path of task 0": torch.tensor([0, 0, 0, 0]), "the path of task 1": torch.tensor([0, 1, 0, 1])}
    assert state == {
        name: hashlib.sha256(repr(tuple(tensor.shape)).encode() + tensor.numpy().tobytes()).hexdigest()
        for name, tensor in tensors.items()
    }
    assert "unit 0 of layer 0 (norm.running_var)" in state and "the head of task 2 (weight)" not in state


@pytest.mark.long
def test_every_bit_is_looked_at() -> None:
    """One bit of one number of any frozen tensor is a fault, which names it; once it is put back, there is none."""
    model = grown()
    before = model.frozen_state()
    assert model.frozen_fault(before) is None
    for place, (name, tensor) in enumerate(frozen_tensors(model).items()):
        raw = tensor.view(-1).view(torch.uint8)
        # The last bit of some byte: of a different one in each tensor.
        at = place * 7 % len(raw)
        raw[at] ^= 1
        assert model.frozen_fault(before) == f"it changed {name}, which earlier tasks are computed by"
        raw[at] ^= 1
        assert model.frozen_fault(before) is None


@pytest.mark.parametrize("change", ["path", "no path", "unit", "thawed", "shape"])
def test_other_changes(change: str) -> None:
    """Another path, a path or a unit that is gone, a unit that would train again, a tensor of another shape."""
    model = grown()
    before = model.frozen_state()
    if change == "path":
        model.set_path(1, (0, 0, 0, 0))
    elif change == "no path":
        del model.paths[1]
    elif change == "unit":
        for layer in range(4):
            while model.candidates[layer] > 1:
                units: Any = model.layers[layer]
                del units[-1]
                model.unit_tasks[layer].pop()
    elif change == "thawed":
        model.unit(3, 1).frozen = False
    else:
        head: Any = model.heads[0]
        head.bias = torch.nn.Parameter(torch.cat([head.bias.data, head.bias.data]))
    expected = {
        "path": "the path of task 1",
        "no path": "the head of task 1",
        "unit": "unit 1 of layer 1",
        "thawed": "unit 1 of layer 3",
        "shape": "the head of task 0 (bias)",
    }
    assert f"it changed {expected[change]}" in (model.frozen_fault(before) or "nothing")


def test_features() -> None:
    """Features before a head on any path: with a head made by hand they give the logits of the task on that path."""
    model = grown()
    x = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    for parameter in model.parameters():
        torch.nn.init.uniform_(parameter, -0.5, 0.5)
    model.eval()
    seen = []
    with torch.no_grad():
        for path in ((0, 0, 0, 0), (0, 1, 0, 1), (1, 2, 1, 2), (1, 0, 0, 2)):
            features = model.features(x, path)
            assert features.shape == (5, 32)
            seen.append(features)
            # Nothing was set by looking.
            assert dict(model.paths) == {0: (0, 0, 0, 0), 1: (0, 1, 0, 1)}
        heads: Any = model.heads
        weight, bias = heads[1].weight, heads[1].bias
        by_hand = torch.stack([(row * weight).sum(dim=1) + bias for row in seen[1]])
        torch.testing.assert_close(model.forward_single_task(x, 1), by_hand)
        heads[2].weight.copy_(torch.eye(32)[:2] * 3)
        heads[2].bias.copy_(torch.tensor([1.0, -1.0]))
        for path, features in zip(((1, 2, 1, 2), (1, 0, 0, 2)), seen[2:], strict=True):
            model.set_path(2, path)
            expected = torch.stack([3 * features[:, 0] + 1, 3 * features[:, 1] - 1], dim=1)
            torch.testing.assert_close(model.forward_single_task(x, 2), expected)
    # Other units, other features.
    assert not any(torch.equal(one, other) for one in seen for other in seen if one is not other)
