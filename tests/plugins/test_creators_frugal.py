"""Growth that has to pay: contenders, probes, budgets and the mixed score."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from support.closed_form import ridge_by_sklearn
from support.plugins.creators import PATHS, STREAM, all_of, announced, creation, grown, task_of
from support.tiny import all_threads, one_thread

from seu_bench.models.sizes import count_parameters
from seu_bench_creators import FrugalOptions
from seu_bench_creators.frugal import FrugalCreation
from seu_bench_creators.paths import earlier_paths, newest_path
from seu_bench_kit import ridge_accuracy
from seu_bench_seu.super_model import SuperModel

pytestmark = pytest.mark.long

setup_module, teardown_module = one_thread, all_threads


# --- frugal -----------------------------------------------------------------------------------------------------------


def frugal(model: SuperModel, task: int = 2, options: FrugalOptions | None = None, **more: Any) -> FrugalCreation:
    stage = creation("frugal", model, task, options, **more)
    assert isinstance(stage, FrugalCreation)
    return stage


def prefixes(old: Sequence[int], new: Sequence[int]) -> list[tuple[int, ...]]:
    """By hand for four layers."""
    (a, b, c, d), (w, x, y, z) = old, new
    return [(w, x, y, z), (a, x, y, z), (a, b, y, z), (a, b, c, z), (a, b, c, d)]


def dead(model: SuperModel, path: Sequence[int]) -> None:
    """Make the features of a path, and of it alone, tell nothing: its last unit gives zeros."""
    unit = model.unit(3, path[3])
    for tensor in unit.state_dict().values():
        tensor.zero_()


#: By task: paths that end in different units.
APART = ((0, 0, 0, 0), (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3))


@pytest.mark.parametrize("stem", ["selectable", "shared"])
def test_contenders_are_prefixes_of_one_path(stem: str) -> None:
    """The first k layers of one earlier path and new units after them, from all new to all old; each once."""
    model = grown(stem=stem)
    new = newest_path(model)
    stage = frugal(model)
    stage.run()
    expected = [list(dict.fromkeys(prefixes(old, new))) for old in (PATHS[1], PATHS[0])]
    assert stage.contenders in expected
    assert len(stage.contenders) == (5 if stem == "selectable" else 4)


def test_every_second_batch_trains_what_is_new() -> None:
    """The batches between belong to any of the contenders but the one that is all old."""
    model = grown()
    stage = frugal(model, epochs=8, batch=4)
    used: list[tuple[int, ...]] = []
    usual = model.set_path

    def noted(task: int, path: Sequence[int]) -> None:
        used.append(tuple(path))
        usual(task, path)

    model.set_path = noted  # type: ignore[method-assign]
    others = []
    for _ in range(7):
        stage.advance()
        assert len(used) == 3  # 10 images by fours
        turns = list(enumerate(used, start=stage.epoch - 1))
        assert all(path == newest_path(model) for turn, path in turns if turn % 2 == 0)
        others += [path for turn, path in turns if turn % 2]
        used.clear()
    assert set(others) <= set(stage.contenders[:-1]) and len(set(others)) > 1


@pytest.mark.parametrize(
    ("quiet", "chosen"), [((), None), ((0,), 1), ((1,), 0), ((0, 1), 1)], ids=["none", "first", "second", "both"]
)
def test_path_of_the_best_probe(quiet: tuple[int, ...], chosen: int | None) -> None:
    """The earlier path whose features separate this task's classes is begun with; of equal ones the latest."""
    model = grown(paths=APART)
    for task in quiet:
        dead(model, APART[task])
    images = task_of(model).images
    (x, y), (check_x, check_y) = (all_of(half) for half in images.halves())
    model.eval()
    with torch.no_grad():
        accuracies = [
            ridge_accuracy(model.features(x, path), y, model.features(check_x, path), check_y) for path in APART[:2]
        ]
    if chosen is None:
        chosen = 0 if accuracies[0] > accuracies[1] else 1
    elif len(quiet) == 1:
        assert accuracies[chosen] > accuracies[1 - chosen]
    else:
        assert accuracies[0] == accuracies[1]
    # So many epochs that all 10 images of each half are probed.
    stage = frugal(model, epochs=20)
    stage.advance()
    assert stage.image_passes == 10 + 2 * 20
    assert stage.contenders == prefixes(APART[chosen], newest_path(model))


@pytest.mark.parametrize(("probed", "passed"), [(2, 4), (3, 4), (5, 8), (256, 12)])
def test_images_of_the_probes(probed: int, passed: int) -> None:
    """Half of the images asked for fit and half check, for each path; together no more than half of what may be
    scored."""
    stage = frugal(grown(paths=APART), epochs=3, options=FrugalOptions(probe_images=probed))
    stage.advance()
    # 3 * 10 images may be scored: 15 for the probes, 7 for each of two paths, 3 to fit and 3 to check at most.
    assert stage.image_passes - 10 == passed


def paper_score(percent: float, parameters: int) -> float:
    """The mixed score as the paper prints it."""
    inner = 1 - math.exp(-math.log10(parameters + 1) / 10)
    return math.sqrt(percent) / 10 * (math.cos(math.pi * inner) + 1) / 2


def parameters_after(model: SuperModel, path: Sequence[int], task: int = 2) -> int:
    """Parameters of the super model once the path is kept: of a copy on which it is kept."""
    other = copy.deepcopy(model)
    other.keep(task, path)
    return count_parameters(other)


@pytest.mark.parametrize(("epochs", "count"), [(1, 5), (2, 1), (5, 4), (12, 10)])
def test_contenders_are_measured(epochs: int, count: int) -> None:
    """Each on the same images of the second half, with the final weights: those that have new units by the head, the
    one that is all old by a probe, which also fits on as many images of the first half. (Without recalibration, whose
    statistics are those of the path measured last.)"""
    # 10 images may be scored per epoch. Half of that is for the comparison: four heads and a probe, which counts twice,
    # or, where six images are too many, what is all new and nothing else.
    model = grown()
    stage = frugal(model, epochs=epochs, options=FrugalOptions(recalibration_images=0))
    path = stage.run()
    assert len(stage.contenders) == (1 if epochs == 1 else 5)
    images = STREAM.tasks[2].train
    (fit_x, fit_y), (x, y) = all_of(images.part(0, count)), all_of(images.part(10, 10 + count))
    model.eval()
    accuracies = []
    head: Any = model.heads[2]
    for contender in stage.contenders:
        with torch.no_grad():
            features, fit_features = model.features(x, contender), model.features(fit_x, contender)
            logits = features @ head.weight.T + head.bias
        if contender in (PATHS[0], PATHS[1]):
            accuracies.append(ridge_by_sklearn(fit_features, fit_y, features, y))
        else:
            accuracies.append(int((logits.argmax(dim=1) == y).sum()) / count)
    assert stage.accuracies == accuracies
    assert stage.report.accuracy == max(accuracies)
    scores = [
        paper_score(100 * (2 * max(accuracies) + accuracy) / 3, parameters_after(model, contender))
        for contender, accuracy in zip(stage.contenders, accuracies, strict=True)
    ]
    assert path == stage.contenders[max(range(len(scores)), key=lambda index: (scores[index], index))]


#: Accuracies of the contenders, from all new to all old.
MEASURED = (
    [1.0, 0.5, 0.5, 0.5, 0.5],
    [0.5, 0.5, 0.5, 0.5, 0.5],
    [0.0, 0.0, 0.0, 0.0, 0.0],
    [0.95, 0.95, 0.94, 0.5, 0.25],
    [0.96, 0.9, 0.93, 0.88, 0.85],
    [0.5, 0.52, 0.53, 0.6, 0.1],
    [1.0, 1.0, 1.0, 1.0, 0.999],
    [0.9, 0.89, 0.88, 0.87, 0.86],
)


@pytest.mark.parametrize("task", [1, 2, 4])
def test_highest_mixed_score(task: int) -> None:
    """The contender is taken whose accuracy, beside the best one for every earlier task, and size score highest; the
    smallest of equal ones."""
    model = grown(task)
    stage = frugal(model, task)
    stage.contenders = prefixes(earlier_paths(model, task)[0], newest_path(model))
    sizes = [parameters_after(model, path, task) for path in stage.contenders]
    taken = []
    for accuracies in MEASURED:
        stage.accuracies = list(accuracies)
        scores = [
            paper_score(100 * (task * max(accuracies) + accuracy) / (task + 1), size)
            for accuracy, size in zip(accuracies, sizes, strict=True)
        ]
        taken.append(max(range(5), key=lambda index: (scores[index], index)))
        assert stage.result() == stage.contenders[taken[-1]]
    assert taken[1:3] == [4, 4] and len(set(taken)) > 2


@pytest.mark.parametrize(
    ("earlier", "images", "epochs"),
    [(1, 4, 1), (4, 4, 1), (4, 5, 1), (2, 5, 2), (3, 6, 3), (4, 9, 2), (4, 20, 1), (1, 20, 1), (4, 35, 3), (2, 7, 12)],
)
def test_passes_of_frugal(earlier: int, images: int, epochs: int) -> None:
    """Never more than the factory says, that is than the paper's creator takes; half are trained on in any case.
    Recalibration takes the whole batches of eight of the training half, or all of it where it is smaller."""
    model = grown(earlier)
    stage = frugal(model, earlier, epochs=epochs, images=images)
    path = stage.run()
    limit = announced("frugal", epochs=epochs, images=images)
    assert limit == announced("mdl", epochs=epochs, images=images)
    half = images // 2
    assert limit == epochs * (images + (half if half < 8 else half - half % 8))
    assert epochs * (images // 2) < stage.image_passes <= limit
    assert path in stage.contenders
    if images == 4:
        # Two images may be scored: too few to compare anything.
        assert stage.contenders == [newest_path(model)]
