"""MNTDP-D's rule as a creator: the prior, its candidates, what each begins with, and which is taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier
from support.plugins.creators import PATHS, STREAM, all_of, creation, grown, task_of
from support.tiny import all_threads, one_thread, weights

from seu_bench_creators import KnnPrefixOptions
from seu_bench_creators.knn_prefix import KnnPrefixCreation
from seu_bench_creators.paths import newest_path
from seu_bench_seu.super_model import SuperModel

setup_module, teardown_module = one_thread, all_threads

#: By task: paths that end in different units.
APART = ((0, 0, 0, 0), (1, 1, 1, 1), (2, 2, 2, 2))


def knn_prefix(model: SuperModel, options: KnnPrefixOptions | None = None, **more: Any) -> KnnPrefixCreation:
    stage = creation("knn_prefix", model, 2, options, **more)
    assert isinstance(stage, KnnPrefixCreation)
    return stage


def dead(model: SuperModel, path: Sequence[int]) -> None:
    """Make the features of a path, and of it alone, tell nothing: its last unit gives zeros."""
    for tensor in model.unit(3, path[3]).state_dict().values():
        tensor.zero_()


@pytest.mark.parametrize(("stem", "count"), [("selectable", 5), ("shared", 4)])
def test_candidates(stem: str, count: int) -> None:
    """Every prefix of one earlier path with new units after it, from all new to all old."""
    stage = knn_prefix(grown(stem=stem), epochs=5)
    stage.run()
    new = newest_path(stage.model)
    assert len(stage.candidates) == len(stage.accuracies) == count
    assert stage.candidates[0] == new and stage.candidates[-1] in [
        (0 if stem == "shared" else path[0], *path[1:]) for path in PATHS[:2]
    ]
    for shorter, longer in zip(stage.candidates, stage.candidates[1:], strict=False):
        assert sum(a != b for a, b in zip(shorter, longer, strict=True)) == 1


@pytest.mark.parametrize("quiet", [(0,), (1,), (), (0, 1)], ids=["second", "first", "computed", "equal"])
def test_prior(quiet: tuple[int, ...]) -> None:
    """The path whose features separate this task's classes best by nearest neighbours, the latest of equal ones."""
    model = grown(paths=APART)
    for task in quiet:
        dead(model, APART[task])
    (x, y), (check_x, check_y) = (all_of(half) for half in task_of(model).images.halves())
    model.eval()
    expected = []
    with torch.no_grad():
        for path in (APART[1], APART[0]):
            near = KNeighborsClassifier(3, algorithm="brute").fit(model.features(x, path).double().numpy(), y.numpy())
            expected.append(near.score(model.features(check_x, path).double().numpy(), check_y.numpy()))
    # So many epochs that all 10 images of each half are looked at.
    stage = knn_prefix(model, KnnPrefixOptions(k=3), epochs=20)
    stage.advance()
    assert stage.priors == pytest.approx(expected)
    chosen = (APART[1], APART[0])[expected.index(max(expected))]
    assert stage.candidates[-1] == chosen
    if len(quiet) == 1:
        assert chosen == APART[1 - quiet[0]] and len(set(expected)) == 2
    if len(quiet) == 2:
        assert chosen == APART[1] and len(set(expected)) == 1


def test_every_candidate_begins_anew_and_the_best_is_kept() -> None:
    """From the same weights, with an optimiser of its own; the result has the weights that were measured."""
    model = grown()
    stage = knn_prefix(model, KnnPrefixOptions(recalibration_images=0), epochs=10)
    initial = weights(stage.trained)
    assert stage.share == 2
    begun, ended = [], []
    learned = stage.initial.restore

    def restored() -> None:
        learned()
        begun.append(weights(stage.trained))

    stage.initial.restore = restored  # type: ignore[method-assign]
    for _ in range(stage.epochs):
        stage.advance()
        ended.append(weights(stage.trained))
    assert len(begun) == 5
    assert all(torch.equal(one[name], initial[name]) for one in begun for name in initial)
    path = stage.run()
    best = max(place for place, value in enumerate(stage.accuracies) if value == max(stage.accuracies))
    assert path == stage.candidates[best]
    assert all(torch.equal(tensor, ended[2 * best + 1][name]) for name, tensor in weights(stage.trained).items())
    model.set_path(2, path)
    model.eval()
    x, y = all_of(STREAM.tasks[2].train.part(10, 20))
    with torch.no_grad():
        assert float((model.forward_single_task(x, 2).argmax(1) == y).double().mean()) == pytest.approx(
            stage.accuracies[best]
        )
