"""Promises of every creator: old weights, the seed, states and budgets; and the creator that takes all new."""

from __future__ import annotations

import io
import random
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from support.plugins.creators import PATHS, announced, creation, grown
from support.tiny import all_threads, one_thread, same, weights
from torch import Tensor

from seu_bench_creators.paths import earlier_paths, newest_path
from seu_bench_seu.super_model import SuperModel

setup_module, teardown_module = one_thread, all_threads


NAMES = ("all_new", "frugal", "knn_prefix", "reuse_first")


def old_things(model: SuperModel, task: int) -> dict[str, Tensor]:
    """All that a creation must leave alone: old units, every other head, earlier paths."""
    layers: Any = model.layers
    left = {
        f"unit {layer} {index} {name}": tensor
        for layer, units in enumerate(layers)
        for index, unit in enumerate(units)
        if model.unit_tasks[layer][index] != task
        for name, tensor in weights(unit).items()
    }
    for other in range(len(model.heads)):
        if other != task:
            left |= {f"head {other} {name}": tensor for name, tensor in weights(model.heads[other]).items()}
    return left | {f"path {other}": torch.tensor(path) for other, path in model.paths.items() if other != task}


def disturb() -> None:
    """Disturbance that a stranger might cause between two epochs."""
    torch.manual_seed(99)
    np.random.seed(99)
    random.seed(99)
    torch.rand(3), np.random.rand(3), random.random()


def ending(stage: Any, path: tuple[int, ...]) -> dict[str, Tensor]:
    """Everything that a finished creation leaves, as tensors."""
    return {
        **weights(stage.model),
        "path": torch.tensor(path),
        "counts": torch.tensor([stage.epoch, stage.image_passes]),
        "measured": torch.tensor([stage.report.loss or 0, stage.report.accuracy or 0], dtype=torch.float64),
    }


# --- all of them ------------------------------------------------------------------------------------------------------


def test_the_model_is_uneven() -> None:
    """Base of the tests below: layers of different numbers of units, the last of each new."""
    model = grown()
    assert (model.candidates, model.has_new) == ([2, 3, 2, 3], [True] * 4)
    assert dict(model.paths) == {0: PATHS[0], 1: PATHS[1]}
    shared = grown(stem="shared")
    assert (shared.candidates, shared.has_new) == ([1, 3, 2, 3], [False, True, True, True])


def test_earlier_paths() -> None:
    """The latest first, each once, and never the task's own."""
    model = grown(4, paths=(PATHS[0], PATHS[1], PATHS[0], PATHS[1]))
    model.set_path(4, [0, 0, 0, 1])
    assert earlier_paths(model, 4) == [PATHS[1], PATHS[0]]
    model = grown(3)
    assert earlier_paths(model, 3) == [PATHS[2], PATHS[1], PATHS[0]]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("stem", ["selectable", "shared"])
def test_what_was_learned_is_untouched(name: str, stem: str) -> None:
    """Old units, other heads and earlier paths are bit by bit what they were; whoever trains trains something."""
    model = grown(stem=stem)
    before, everything = old_things(model, 2), weights(model)
    path = creation(name, model).run()
    assert same(old_things(model, 2), before)
    assert same(weights(model), everything) == (name == "all_new")
    assert model.path_fault(path) is None
    model.keep(2, path)
    assert same(old_things(model, 2), before)


@cache
def quiet_ending(name: str) -> dict[str, Tensor]:
    """How a stage ends that nobody disturbs or interrupts."""
    stage = creation(name)
    return ending(stage, stage.run())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.long
def test_the_seed_alone_decides(name: str) -> None:
    """Draws of others change nothing, and nothing is drawn from others; another seed trains otherwise."""
    expected = quiet_ending(name)
    stage = creation(name)
    while stage.epoch < stage.epochs:
        disturb()
        stage.advance()
    disturb()
    at = [torch.rand(2).tolist(), np.random.rand(2).tolist(), random.random()]
    disturb()
    path = stage.run()
    assert [torch.rand(2).tolist(), np.random.rand(2).tolist(), random.random()] == at
    assert same(ending(stage, path), expected)
    other = creation(name, seed=4)
    assert same(ending(other, other.run()), expected) == (name == "all_new")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("epochs", [1, pytest.param(3, marks=pytest.mark.long)])
def test_resumes_bit_by_bit(name: str, epochs: int) -> None:
    """A new stage that loads the state after k epochs from a safe checkpoint ends as the uninterrupted one does."""
    first = creation(name)
    for _ in range(min(epochs, first.epochs)):
        first.advance()
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    # What the first one does from here on is its own affair: the state is on disk.
    first.run()
    file.seek(0)
    second = creation(name)
    disturb()
    second.load_state_dict(torch.load(file, weights_only=True))
    assert second.epoch == min(epochs, second.epochs)
    assert same(ending(second, second.run()), quiet_ending(name))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("epochs", [1, 2, 6, pytest.param(20, marks=pytest.mark.long)])
def test_budget(name: str, epochs: int) -> None:
    """As many epochs as the schedule has, and no more image passes than announced; reuse_first takes them all.

    The five candidates of knn_prefix share the epochs equally.
    """
    stage = creation(name, epochs=epochs, images=5)
    stage.run()
    # 5 images: 2 train and recalibrate, 3 are scored.
    limit = announced(name, epochs=epochs, images=5)
    assert limit == (0 if name == "all_new" else 7 * epochs)
    shared = epochs - epochs % 5 if name == "knn_prefix" and epochs > 5 else epochs
    assert stage.epoch == stage.epochs == (0 if name == "all_new" else shared)
    if name in ("frugal", "knn_prefix"):
        assert 2 * shared < stage.image_passes <= limit
    else:
        assert stage.image_passes == limit


# --- all new ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stem", "path"), [("selectable", (1, 2, 1, 2)), ("shared", (0, 2, 1, 2))])
def test_all_new(stem: str, path: tuple[int, ...]) -> None:
    """The newest unit of every layer; where all tasks share a stem, that one. No image is passed."""
    model = grown(stem=stem)
    stage = creation("all_new", model)
    assert stage.run() == path == newest_path(model)
    assert (stage.epochs, stage.image_passes) == (0, 0)
