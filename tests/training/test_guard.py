"""The guard around plugins' stages changes nothing where nothing is wrong, and names the plugin where something is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from support.guarded import NAMED, Plain, guarded
from support.tiny import all_threads, genotype, one_thread, super_model
from torch import Tensor

from seu_bench.errors import PluginError, RunError
from seu_bench.training.stage import EpochReport, StageProgress
from seu_bench_seu.super_model import SuperModel

setup_module, teardown_module = one_thread, all_threads


def test_what_is_told_and_found() -> None:
    """The result comes through; epochs, images, seconds and reports are the plugin's, stage and task the strategy's."""
    seen: list[StageProgress] = []
    stage = guarded(Plain)
    assert stage.run(seen.append) == "found"
    assert [(told.epoch, told.image_passes, told.done) for told in seen] == [
        (0, 0, False),
        (1, 4, False),
        (2, 8, False),
        (3, 12, True),
    ]
    assert {(told.stage, told.task, told.epochs) for told in seen} == {("search", 1, 3)}
    assert (stage.epoch, stage.image_passes, stage.report) == (3, 12, EpochReport(0.5, 0.25))
    assert seen[-1].report == EpochReport(0.5, 0.25)
    assert 0 < stage.inner.seconds <= stage.seconds < 60


@pytest.mark.parametrize("at", [0, 4, 5])
def test_watcher_is_not_the_plugin(at: int) -> None:
    """A watcher's exception comes out as it is, from within an epoch as from between two."""
    error = PluginError("the watcher broke")

    def fail(progress: StageProgress) -> None:
        if progress.image_passes == at:
            raise error

    def tell_at_once(stage: Any) -> None:
        if at == 5:
            stage._notified = -math.inf
            stage.count_images(1)

    with pytest.raises(PluginError) as caught:
        guarded(lambda: Plain(act=tell_at_once)).run(fail)
    assert caught.value is error


@pytest.mark.parametrize("place", ["epoch", "result"])
@pytest.mark.parametrize("watched", [True, False])
def test_budget_is_kept_image_by_image(place: str, watched: bool) -> None:
    """A loop without an end is stopped at the first image beyond the budget, whether or not anybody watches."""
    counted: list[int] = []

    def for_ever(stage: Any) -> Any:
        while True:
            counted.append(1)
            stage.count_images(1)

    class Endless(Plain):
        result = for_ever if place == "result" else Plain.result

    stage = guarded(lambda: Endless(3, None if place == "result" else for_ever), passes=50)
    with pytest.raises(RunError, match=NAMED + "it passed 51 images forward, and had announced 50 at most") as caught:
        stage.run((lambda progress: None) if watched else None)
    assert caught.value.remedy is not None and "estimate_passes" in caught.value.remedy
    assert len(counted) == (39 if place == "result" else 47)


def test_budget_after_resuming() -> None:
    """Images before an interruption count."""
    first = guarded(Plain, passes=9)
    first.advance()
    second = guarded(Plain, passes=9)
    second.load_state_dict(first.state_dict())
    second.advance()
    with pytest.raises(RunError, match="it passed 12 images forward, and had announced 9 at most"):
        second.advance()


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


def test_what_was_looked_at_before_is_not_taken_as_it_is() -> None:
    """A unit that changed between two creations is a fault of the second one, too; a hook of who looks on is none."""
    model = grown()
    before = model.frozen_state()
    model.unit(2, 0).register_forward_hook(lambda *_: None)
    assert model.frozen_fault(model.frozen_state(known=before)) is None
    next(model.unit(2, 0).parameters()).data.add_(1)
    assert model.frozen_fault(model.frozen_state()) is None
    assert "it changed unit 0 of layer 2 (" in (model.frozen_fault(model.frozen_state(known=before)) or "nothing")


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
