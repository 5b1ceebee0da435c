"""Promises of every creator: old weights, the seed, states and budgets; and the creator that takes all new."""

from __future__ import annotations

import pytest
from support.plugins.creators import PATHS, announced, creation, grown
from support.tiny import all_threads, one_thread

from seu_bench_creators.paths import earlier_paths, newest_path

setup_module, teardown_module = one_thread, all_threads


NAMES = ("all_new", "frugal", "knn_prefix", "reuse_first")


# --- all of them ------------------------------------------------------------------------------------------------------


def test_earlier_paths() -> None:
    """The latest first, each once, and never the task's own."""
    model = grown(4, paths=(PATHS[0], PATHS[1], PATHS[0], PATHS[1]))
    model.set_path(4, [0, 0, 0, 1])
    assert earlier_paths(model, 4) == [PATHS[1], PATHS[0]]
    model = grown(3)
    assert earlier_paths(model, 3) == [PATHS[2], PATHS[1], PATHS[0]]


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
