"""Promises of every creator: old weights, the seed, states and budgets; and the creator that takes all new."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier
from support.closed_form import ridge_by_sklearn
from support.components import PATHS, STREAM, all_of, creation, grown, task_of
from support.tiny import same, weights
from torch import Tensor

from seu_bench.models.sizes import count_parameters
from seu_bench_creators import FrugalOptions, KnnPrefixOptions, ReuseFirstOptions
from seu_bench_creators.frugal import FrugalCreation
from seu_bench_creators.knn_prefix import KnnPrefixCreation
from seu_bench_creators.paths import earlier_paths, newest_path
from seu_bench_creators.reuse_first import ReuseFirstCreation
from seu_bench_kit.components import CreationTask
from seu_bench_seu.super_model import SuperModel


def test_earlier_paths() -> None:
    """The latest first, each once, and never the task's own."""
    model = grown(4, paths=(PATHS[0], PATHS[1], PATHS[0], PATHS[1]))
    model.set_path(4, [0, 0, 0, 1])
    assert earlier_paths(model, 4) == [PATHS[1], PATHS[0]]
    model = grown(3)
    assert earlier_paths(model, 3) == [PATHS[2], PATHS[1], PATHS[0]]


def changed_layers(path: Sequence[int], other: Sequence[int]) -> list[int]:
    return [layer for layer, (one, two) in enumerate(zip(path, other, strict=True)) if one != two]


@pytest.mark.parametrize(("stem", "path"), [("selectable", (1, 2, 1, 2)), ("shared", (0, 2, 1, 2))])
def test_all_new(stem: str, path: tuple[int, ...]) -> None:
    """The newest unit of every layer; where all tasks share a stem, that one. No image is passed."""
    model = grown(stem=stem)
    stage = creation("all_new", model)
    assert stage.run() == path == newest_path(model)
    assert (stage.epochs, stage.image_passes) == (0, 0)


pytestmark = pytest.mark.long


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


def knn_prefix(model: SuperModel, options: KnnPrefixOptions | None = None, **more: Any) -> KnnPrefixCreation:
    stage = creation("knn_prefix", model, 2, options, **more)
    assert isinstance(stage, KnnPrefixCreation)
    return stage


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
    found = [stage.probe(path, 10) for path in (APART[1], APART[0])]
    assert found == pytest.approx(expected)
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


class Told(ReuseFirstCreation):
    """Reuse first with accuracies that a test gives, by epoch; it also keeps the weights that each epoch begins and
    ends with."""

    def __init__(self, accuracies: Sequence[float], options: ReuseFirstOptions, task: CreationTask) -> None:
        super().__init__(options, task)
        self.told = accuracies
        self.tried: list[tuple[int, ...]] = []
        self.begun: list[dict[str, Tensor]] = []
        self.left: list[dict[str, Tensor]] = []

    def forward_of(self, sampled: tuple[int, ...]) -> Any:
        """Paths tried, and their weights."""
        self.tried.append(sampled)
        self.begun.append(weights(self.trained))
        return super().forward_of(sampled)

    def learn(self, sampled: tuple[int, ...], accuracy: float, loss: float) -> None:
        """Learn from another accuracy."""
        self.left.append(weights(self.trained))
        super().learn(sampled, self.told[self.epoch], loss)


def told(*accuracies: float, task: int = 2, stem: str = "selectable", **options: Any) -> Told:
    """With as many epochs as there are accuracies."""
    given = task_of(grown(task, stem=stem), task, epochs=len(accuracies), images=5)
    return Told(accuracies, ReuseFirstOptions(**options), given)


def test_old_units_have_the_first_word() -> None:
    """The first epochs try paths of old units only: those of earlier tasks, the latest first, then mixtures; they train
    the head and nothing else."""
    stage = told(*[0.5] * 12, task=3, old_share=1.0)
    start = weights(stage.trained)
    stage.run()
    assert stage.tried[:3] == [PATHS[2], PATHS[1], PATHS[0]]
    old = [count - 1 for count in stage.model.candidates]
    assert all(0 <= index < count for path in stage.tried for index, count in zip(path, old, strict=True))
    # Nine draws out of 2 * 2 * 2 * 3 mixtures.
    assert len(set(stage.tried[3:])) > 4
    for left in stage.left:
        assert {name for name, tensor in left.items() if not torch.equal(tensor, start[name])} == {
            "4.weight",
            "4.bias",
        }


def test_new_unit_stays_where_it_gains() -> None:
    """It stays if the accuracy is higher by more than ``min_gain``; otherwise head and new units are bit by bit what
    they were, for the next layer and at the end."""
    # Old paths; then layers 3 (gains no more than asked), 2 (gains), 1 (falls), 0 (gains). Eighths are exact.
    stage = told(0.25, 0.5, 0.625, 0.75, 0.5, 1.0, min_gain=0.125)
    while stage.epoch < stage.epochs:
        stage.advance()
    old = PATHS[0]
    assert stage.tried[1] == old
    assert stage.tried[2:] == [(0, 0, 0, 2), (0, 0, 1, 0), (0, 2, 1, 0), (1, 0, 1, 0)]
    # Every epoch trains.
    assert all(not same(begun, ended) for begun, ended in zip(stage.begun, stage.left, strict=True))
    for epoch, before in ((2, 1), (3, 1), (4, 3), (5, 3)):
        assert same(stage.begun[epoch], stage.left[before])
    assert stage.result() == (1, 0, 1, 0)
    assert same(weights(stage.trained), stage.left[5])


def test_reuse_first_measures_the_second_half() -> None:
    """It learns from the accuracy on the second half, in evaluation mode, of the path tried."""
    stage = creation("reuse_first", epochs=2)
    assert isinstance(stage, ReuseFirstCreation)
    stage.advance()
    model: Any = stage.model
    x, y = all_of(STREAM.tasks[2].train.part(10, 20))
    model.eval()
    with torch.no_grad():
        right = model.forward_single_task(x, 2).argmax(dim=1) == y
    assert stage.accuracy == stage.report.accuracy == int(right.sum()) / 10
    assert stage.path == model.paths[2] == PATHS[1]


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
            ridge_by_sklearn(model.features(x, path), y, model.features(check_x, path), check_y) for path in APART[:2]
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


@pytest.mark.parametrize(
    ("epochs", "layers"),
    [
        (1, []),
        (2, [3]),
        (6, [3, 2, 1, 0]),
        # Seven for old units; three for each layer, and the one left over for the last.
        (20, [3, 3, 3, 2, 2, 2, 1, 1, 1, 0, 0, 0, 0]),
    ],
)
def test_layers_from_last_to_first(epochs: int, layers: list[int]) -> None:
    """Later epochs try the new unit of one layer each, the last layer first; where nothing gains, all else is old."""
    stage = told(*[0.5] * epochs)
    stage.run()
    tried = stage.tried[epochs - len(layers) :]
    assert [changed_layers(path, stage.tried[0]) for path in tried] == [[layer] for layer in layers]
    assert all(path[layer] == stage.model.candidates[layer] - 1 for path, layer in zip(tried, layers, strict=True))
