"""Streams to which tasks may be added: nothing of a task hangs on later ones; learned ones need no training images."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
import torch
from support.streams import ALL, everything
from support.tiny import raw_dataset

from seu_bench.config import BenchmarkSpec
from seu_bench.data import TaskStream, build_stream
from seu_bench.data.dataset import RawDataset
from seu_bench.errors import RunError
from seu_bench.models import BackboneModel

#: Data sets of other brightness each.
DATA = {name: raw_dataset([24, 20], [4, 4], channels=3) for name in ("a", "b", "c")}
for shift, name in enumerate(DATA):
    for split in (DATA[name].train, DATA[name].test):
        split.images[:] = split.images // 4 + 60 * shift


def sequence(*names: str, **more: Any) -> BenchmarkSpec:
    tasks = {name: {"dataset": name} for name in names}
    stream = {"kind": "datasets", "scenario": "class", "tasks": tasks, "input": {"normalise": "first_task"}, **more}
    return BenchmarkSpec.of(stream, name="open")


def built(spec: BenchmarkSpec, **more: Any) -> TaskStream:
    return build_stream(spec, DATA.__getitem__, ALL, 3, **more)


def test_a_longer_stream_begins_with_the_same_tasks() -> None:
    """Bit by bit, with the mean of what the first task is trained on."""
    short, long = built(sequence("a", "b")), built(sequence("a", "b", "c"))
    assert short.plan.open_ended and long.plan.open_ended
    assert short.identities == long.identities[:2] and long.inputs[2]["mean"] == long.inputs[0]["mean"]
    for one, other in zip(short.tasks, long.tasks, strict=False):
        for name in ("train", "valid", "test"):
            pairs = zip(everything(getattr(one, name)), everything(getattr(other, name)), strict=True)
            assert all(torch.equal(*pair) for pair in pairs)
    x = everything(long.tasks[0].train)[0]
    np.testing.assert_allclose(x.mean((0, 2, 3)), 0, atol=1e-5)
    valid = everything(long.tasks[0].valid)[0]
    assert valid.mean((0, 2, 3)).abs().max() > 1e-3  # of its own images


def test_by_default_nothing_of_the_mean_changes() -> None:
    """Each data set has its own; an input of a task goes before that of the stream."""
    own = built(sequence("a", "b", input={}))
    assert not own.plan.open_ended and own.inputs[0]["mean"] != own.inputs[1]["mean"]
    spec = sequence("a", "b", tasks={"a": {"dataset": "a"}, "b": {"dataset": "b", "input": {"normalise": "data_set"}}})
    mixed = built(spec)
    assert not mixed.plan.open_ended and mixed.inputs[1] == own.inputs[1] and mixed.inputs[0] != own.inputs[0]


@pytest.mark.parametrize("first", ["a", "grey"])
def test_grey_images_beside_coloured_ones(first: str) -> None:
    """They are repeated, then normalised by the means of the first task, be it coloured or grey."""
    sets = {"a": DATA["a"], "grey": raw_dataset([24, 20], [4, 4])}
    tasks = {name: {"dataset": name, "input": {"channels": 3}} for name in sorted(sets, key=lambda name: name != first)}
    stream = build_stream(sequence(tasks=tasks), sets.__getitem__, ALL, 3)
    mean, std = (torch.tensor(stream.inputs[0][key]).view(1, -1, 1, 1) for key in ("mean", "std"))
    found = everything(stream.tasks[[*tasks].index("grey")].test)[0]
    raw = torch.from_numpy(sets["grey"].test.images).float() / 255
    assert torch.equal(found, ((raw - mean) / std).expand(-1, 3, -1, -1))


def test_training_images_of_learned_tasks_are_not_held() -> None:
    """But for the first, which all are normalised by, and those of data sets that later tasks have as well."""
    whole, late = built(sequence("a", "b", "c")), built(sequence("a", "b", "c"), learned=2)
    assert (whole.plan, whole.fingerprint, whole.identities) == (late.plan, late.fingerprint, late.identities)
    for one, other in zip(whole.tasks, late.tasks, strict=True):
        assert all(torch.equal(*pair) for pair in zip(everything(one.test), everything(other.test), strict=True))
    with pytest.raises(RunError, match="not at hand"):
        everything(late.tasks[1].train)
    everything(late.tasks[0].train)
    late.avalanche()
    tasks = {"a": {"dataset": "a"}, "b": {"dataset": "b", "labels": [0]}, "again": {"dataset": "b", "labels": [1]}}
    everything(built(sequence(tasks=tasks), learned=2).tasks[1].train)


def test_images_are_let_go_as_data_sets_are_read() -> None:
    """When the next one is read, no training images of a learned task are left but the first one's."""
    loaded: dict[str, weakref.ref[Any]] = {}

    def load(name: str) -> RawDataset:
        assert [it for it, images in loaded.items() if images() is not None] == list(loaded)[:1]
        data = raw_dataset([24, 20], [4, 4], channels=3)
        loaded[name] = weakref.ref(data.train.images)
        return data

    build_stream(sequence("a", "b", "c", "d"), load, ALL, 0, learned=3)
    assert list(loaded) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("scenario", ["task", "class"])
def test_outputs_are_drawn_when_their_task_begins(scenario: Any) -> None:
    """Whatever became of them before, and however many tasks there are; once."""
    two, three = (BackboneModel(torch.nn.Flatten(), 4, [2] * count, scenario, seed=5) for count in (2, 3))
    with torch.no_grad():
        for weight in three.heads.parameters():
            weight.mul_(0.5)
    for model in (two, three):
        model.begin_task(0)
        model.begin_task(1)
    x = torch.randn(3, 4)
    assert torch.equal(two(x, 1), three(x, 1)) and two(x, 1).shape == (3, 2 if scenario == "task" else 4)
    with torch.no_grad():
        next(two.head(1).parameters()).zero_()
    before = two(x, 1)
    two.begin_task(1)  # as a run that is resumed does
    assert torch.equal(two(x, 1), before)
