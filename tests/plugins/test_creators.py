"""The creators beside the paper's choose as they say, keep their budget, and leave what was learned as it was."""

from __future__ import annotations

import copy
import io
import math
import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler
from support.tiny import all_threads, class_stream, genotype, one_thread, registry, same, super_model, weights
from torch import Tensor

from seu_bench.config.protocol import CreationSchedule
from seu_bench.data.images import TaskImages
from seu_bench.models.sizes import count_parameters
from seu_bench.training.interfaces import CreationTask
from seu_bench.training.stage import Stage
from seu_bench.utils.seeding import RandomState
from seu_bench_creators import FrugalOptions, ReuseFirstOptions
from seu_bench_creators.frugal import FrugalCreation
from seu_bench_creators.paths import earlier_paths, newest_path
from seu_bench_creators.probe import RIDGE, probe_accuracy
from seu_bench_creators.reuse_first import ReuseFirstCreation
from seu_bench_seu.super_model import SuperModel

setup_module, teardown_module = one_thread, all_threads

CPU = torch.device("cpu")
STREAM = class_stream([[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]], images=23)
NAMES = ("all_new", "frugal", "reuse_first")
#: By task, the path that it was learned with: layers end up with different numbers of units.
PATHS = ((0, 0, 0, 0), (0, 1, 0, 1), (1, 0, 1, 2), (0, 1, 1, 0))
GENOTYPES = ("darts_v1", "mdenas_mixture", "darts_v2", "mdenas_pmnist", "mdenas_mixture")


def grown(task: int = 2, *, stem: Any = "selectable", paths: Sequence[Sequence[int]] = PATHS) -> SuperModel:
    """A super model that learned the tasks before ``task`` and was expanded for it; the same one every time."""
    model = super_model((2,) * 5, stem=stem)
    with RandomState(1).active():
        for earlier in range(task):
            model.expand(genotype(GENOTYPES[earlier]), earlier)
            model.train()
            model.set_path(earlier, [count - 1 for count in model.candidates])
            images = STREAM.tasks[earlier].train
            # BatchNorm's statistics are those of real images, and no two units are alike.
            model.forward_single_task(images.gather(torch.arange(16))[0], earlier)
            path = list(paths[earlier])
            if stem == "shared":
                path[0] = 0
            model.keep(earlier, path)
            model.freeze()
        model.expand(genotype(GENOTYPES[task]), task)
    return model


def task_of(
    model: SuperModel, task: int = 2, *, epochs: int = 3, seed: int = 3, images: int = 20, batch: int = 8
) -> CreationTask:
    """What a creator is given: half of so many images train."""
    schedule = CreationSchedule(epochs=epochs, batch_size=batch, learning_rate=0.05)
    return CreationTask(model, STREAM.tasks[task].train.part(0, images), task, schedule, seed, CPU)


def creation(
    name: str, model: SuperModel | None = None, task: int = 2, options: Any = None, **more: Any
) -> Stage[tuple[int, ...]]:
    """A creation stage as the strategy makes it: by the registered factory."""
    factory = registry().creators.find(name).factory
    return factory.build(options or factory.options(), task_of(model or grown(task), task, **more))


def announced(name: str, *, epochs: int, images: int) -> int:
    """Image passes that the factory says the stage takes, at most."""
    factory = registry().creators.find(name).factory
    return sum(factory.estimate_passes(factory.options(), CreationSchedule(epochs=epochs), images))


def all_of(images: TaskImages) -> tuple[Tensor, Tensor]:
    return images.gather(torch.arange(len(images)))


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
    """What a stranger might do between two epochs."""
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


# --- all of them ----------------------------------------------------------------------------------------------------


def test_the_model_is_uneven() -> None:
    """What the tests below build on: layers of different numbers of units, the last of each new."""
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
def test_the_seed_alone_decides(name: str) -> None:
    """What others draw changes nothing, and nothing is drawn from others; another seed trains otherwise."""
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
    """As many epochs as the schedule has, and no more image passes than announced; reuse_first takes them all."""
    stage = creation(name, epochs=epochs, images=5)
    stage.run()
    # 5 images: 2 train, 3 are scored.
    limit = announced(name, epochs=epochs, images=5)
    assert limit == (0 if name == "all_new" else 5 * epochs)
    assert stage.epoch == stage.epochs == (0 if name == "all_new" else epochs)
    assert stage.image_passes == limit if name != "frugal" else 2 * epochs < stage.image_passes <= limit


# --- all new --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stem", "path"), [("selectable", (1, 2, 1, 2)), ("shared", (0, 2, 1, 2))])
def test_all_new(stem: str, path: tuple[int, ...]) -> None:
    """The newest unit of every layer; where all tasks share a stem, that one. No image is passed."""
    model = grown(stem=stem)
    stage = creation("all_new", model)
    assert stage.run() == path == newest_path(model)
    assert (stage.epochs, stage.image_passes) == (0, 0)


# --- reuse first ----------------------------------------------------------------------------------------------------


class Told(ReuseFirstCreation):
    """Reuse first with accuracies that a test gives, by epoch; it also keeps the weights that each epoch begins and
    ends with."""

    def __init__(self, accuracies: Sequence[float], options: ReuseFirstOptions, task: CreationTask) -> None:
        super().__init__(options, task)
        self.told = accuracies
        self.tried: list[tuple[int, ...]] = []
        self.begun: list[dict[str, Tensor]] = []
        self.ended: list[dict[str, Tensor]] = []

    def forward_of(self, sampled: tuple[int, ...]) -> Any:
        """What is tried, and with which weights."""
        self.tried.append(sampled)
        self.begun.append(weights(self.trained))
        return super().forward_of(sampled)

    def learn(self, sampled: tuple[int, ...], accuracy: float, loss: float) -> None:
        """Learn from another accuracy."""
        self.ended.append(weights(self.trained))
        super().learn(sampled, self.told[self.epoch], loss)


def told(*accuracies: float, task: int = 2, stem: str = "selectable", **options: Any) -> Told:
    """With as many epochs as there are accuracies."""
    given = task_of(grown(task, stem=stem), task, epochs=len(accuracies), images=5)
    return Told(accuracies, ReuseFirstOptions(**options), given)


def changed_layers(path: Sequence[int], other: Sequence[int]) -> list[int]:
    return [layer for layer, (one, two) in enumerate(zip(path, other, strict=True)) if one != two]


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
    for left in stage.ended:
        assert {name for name, tensor in left.items() if not torch.equal(tensor, start[name])} == {
            "4.weight",
            "4.bias",
        }


@pytest.mark.parametrize(
    ("share", "epochs", "old"), [(0.34, 1, 1), (0.34, 2, 1), (0.34, 6, 2), (0.5, 8, 4), (1.0, 4, 4), (0.01, 4, 1)]
)
def test_share_of_the_old_units(share: float, epochs: int, old: int) -> None:
    """So many epochs, and one at least, try old units only."""
    stage = told(*[0.5] * epochs, old_share=share)
    stage.run()
    new = [count - 1 for count in stage.model.candidates]
    assert [any(index == last for index, last in zip(path, new, strict=True)) for path in stage.tried] == [
        *[False] * old,
        *[True] * (epochs - old),
    ]


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


def test_shared_stem_is_not_tried() -> None:
    """Where all tasks share a stem there is no new one to try."""
    stage = told(*[0.5] * 6, stem="shared")
    stage.run()
    assert [changed_layers(path, stage.tried[0]) for path in stage.tried[2:]] == [[3], [2], [1], [1]]


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
    assert all(not same(begun, ended) for begun, ended in zip(stage.begun, stage.ended, strict=True))
    for epoch, before in ((2, 1), (3, 1), (4, 3), (5, 3)):
        assert same(stage.begun[epoch], stage.ended[before])
    assert stage.result() == (1, 0, 1, 0)
    assert same(weights(stage.trained), stage.ended[5])


def test_refused_at_the_end() -> None:
    """If the last trial does not gain, the weights of the best one come back."""
    stage = told(0.25, 0.5, 0.75, 0.75, 0.5, 0.5)
    while stage.epoch < stage.epochs:
        stage.advance()
    assert not same(weights(stage.trained), stage.ended[2])
    assert stage.result() == (0, 0, 0, 2)
    assert same(weights(stage.trained), stage.ended[2])


def test_nothing_gains() -> None:
    """Then the best old path stands, the first of equal ones, with the weights it was scored with."""
    stage = told(0.5, 0.75, 0.75, 0.75, 0.75, 0.25)
    assert stage.run() == PATHS[0]
    assert same(weights(stage.trained), stage.ended[1])


def test_unit_trains_on_for_its_share() -> None:
    """A layer's further epochs go on from the one before, gain or not; the next layer begins with the best weights."""
    # Old, old, old, layer 3 twice, 2 twice, 1 twice, 0 thrice.
    stage = told(0.5, 0.5, 0.5, 0.25, 0.75, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, old_share=0.25)
    while stage.epoch < stage.epochs:
        stage.advance()
    assert [changed_layers(path, PATHS[1]) for path in stage.tried[3:7]] == [[3], [3], [2, 3], [2, 3]]
    assert same(stage.begun[3], stage.ended[0])
    assert same(stage.begun[4], stage.ended[3])
    assert same(stage.begun[5], stage.ended[4])
    assert same(stage.begun[6], stage.ended[5])
    assert same(stage.begun[7], stage.ended[4])
    assert stage.result() == (0, 1, 0, 2)
    assert same(weights(stage.trained), stage.ended[4])


def test_gain_is_asked_of_new_units_only() -> None:
    """The best of the old paths stands, however little it is better than another."""
    assert told(0.5, 0.5625, 0.25, old_share=0.7, min_gain=0.125).run() == PATHS[0]


@pytest.mark.parametrize(
    "gain",
    [
        0.0,
        0.5,
        1.0,
    ],
)
def test_nothing_is_right(gain: float) -> None:
    """Also where every path is wrong on every image, a path of old units comes out."""
    assert told(*[0.0] * 6, min_gain=gain).run() == PATHS[1]


def test_reuse_first_measures_the_second_half() -> None:
    """What it learns from is the accuracy on the second half, in evaluation mode, of the path tried."""
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


# --- frugal ---------------------------------------------------------------------------------------------------------


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


def test_batches_take_turns_over_all_epochs() -> None:
    """An epoch of one batch trains what is new in one epoch and any of the contenders in the next."""
    model = grown()
    stage = frugal(model, epochs=12, images=8)
    used = []
    while stage.epoch < 11:
        stage.advance()
        used.append(model.paths[2])
    assert len(set(used)) > 1


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
            probe_accuracy(model.features(x, path), y, model.features(check_x, path), check_y) for path in APART[:2]
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


def test_without_probes_the_newest_path() -> None:
    """With ``probe_images=0`` nothing is probed, whatever the features are worth."""
    model = grown(paths=APART)
    dead(model, APART[1])
    stage = frugal(model, options=FrugalOptions(probe_images=0))
    stage.advance()
    assert stage.contenders == prefixes(APART[1], newest_path(model))
    assert stage.image_passes == 10


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


@pytest.mark.parametrize("stem", ["selectable", "shared"])
def test_stored_parameters(stem: str) -> None:
    """What a contender would cost is what the super model has after it is kept."""
    model = grown(stem=stem)
    stage = frugal(model)
    stage.advance()
    sizes = [stage._stored(path) for path in stage.contenders]
    assert sizes == [parameters_after(model, path) for path in stage.contenders]
    assert sorted(set(sizes), reverse=True) == sizes
    mixed = (0, 2, 0, 2)
    assert stage._stored(mixed) == parameters_after(model, mixed)


def ridge_accuracy(rows: Tensor, labels: Tensor, check: Tensor, check_labels: Tensor) -> float:
    """Of scikit-learn's ridge on one-hot targets and standardised features."""
    sklearn: Any = StandardScaler
    scaler = sklearn().fit(rows.double().numpy())
    sklearn = Ridge
    targets = np.eye(int(labels.max()) + 1)[labels.numpy()]
    ridge = sklearn(alpha=RIDGE * len(rows)).fit(scaler.transform(rows.double().numpy()), targets)
    answers = ridge.predict(scaler.transform(check.double().numpy())).reshape(len(check), -1).argmax(axis=1)
    return float((answers == check_labels.numpy()).mean())


@pytest.mark.parametrize(("epochs", "count"), [(1, 5), (2, 1), (5, 4), (12, 10)])
def test_contenders_are_measured(epochs: int, count: int) -> None:
    """Each on the same images of the second half, with the final weights: those that have new units by the head, the
    one that is all old by a probe, which also fits on as many images of the first half."""
    # 10 images may be scored per epoch. Half of that is for the comparison: four heads and a probe, which counts twice,
    # or, where six images are too many, what is all new and nothing else.
    model = grown()
    stage = frugal(model, epochs=epochs)
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
            accuracies.append(ridge_accuracy(fit_features, fit_y, features, y))
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


def test_growth_that_pays_and_growth_that_does_not() -> None:
    """Both ends occur: a great gain is worth new units everywhere, a small one is not."""
    model = grown()
    stage = frugal(model)
    stage.contenders = prefixes(PATHS[1], newest_path(model))
    stage.accuracies = [1.0, 0.5, 0.5, 0.5, 0.5]
    assert stage.result() == newest_path(model)
    stage.accuracies = [0.9, 0.899, 0.898, 0.897, 0.896]
    assert stage.result() == PATHS[1]


@pytest.mark.parametrize(
    ("earlier", "images", "epochs"),
    [(1, 4, 1), (4, 4, 1), (4, 5, 1), (2, 5, 2), (3, 6, 3), (4, 9, 2), (4, 20, 1), (1, 20, 1), (4, 35, 3), (2, 7, 12)],
)
def test_passes_of_frugal(earlier: int, images: int, epochs: int) -> None:
    """Never more than the factory says, that is than the paper's creator takes; half are trained on in any case."""
    model = grown(earlier)
    stage = frugal(model, earlier, epochs=epochs, images=images)
    path = stage.run()
    limit = announced("frugal", epochs=epochs, images=images)
    assert limit == announced("mdl", epochs=epochs, images=images) == epochs * images
    assert epochs * (images // 2) < stage.image_passes <= limit
    assert path in stage.contenders
    if images == 4:
        # Two images may be scored: too few to compare anything.
        assert stage.contenders == [newest_path(model)]


# --- the probe ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("images", "features", "noise"), [(40, 6, 1.5), (12, 30, 1.0), (5, 3, 3.0)])
def test_probe_is_ridge_regression(images: int, features: int, noise: float) -> None:
    """The accuracy is that of scikit-learn's ridge on one-hot targets and equally standardised features."""
    seen = set()
    for seed in range(8):
        generator = np.random.default_rng(seed)
        centres = generator.normal(0, 1, (3, features))
        labels, check_labels = (np.concatenate([[0, 1, 2], generator.integers(0, 3, images)]) for _ in range(2))
        # Features of very different means and sizes, one of which never changes.
        size = 10.0 ** generator.integers(-2, 3, features)
        rows, check = (
            ((centres[y] + generator.normal(0, noise, (len(y), features))) * size + 3 * size).astype(np.float32)
            for y in (labels, check_labels)
        )
        rows[:, 0] = check[:, 0] = 7.0
        given = [torch.from_numpy(values) for values in (rows, labels, check, check_labels)]
        expected = ridge_accuracy(*given)
        assert probe_accuracy(*given) == pytest.approx(expected, abs=1e-12)
        seen.add(expected)
    # Neither always right nor always the same.
    assert len(seen) > 1 and min(seen) < 1


def test_probe_of_separable_classes() -> None:
    """Classes that lie apart are told apart without a fault; features without a difference tell nothing."""
    labels = torch.arange(30) % 3
    features = torch.eye(3)[labels] * 5 + torch.randn(30, 3, generator=torch.Generator().manual_seed(0)) * 0.1
    assert probe_accuracy(features, labels, features.flip(0), labels.flip(0)) == 1.0
    assert probe_accuracy(features, labels, features.flip(0), (labels + 1).flip(0) % 3) == 0.0
    flat = torch.full((30, 4), 2.5)
    assert probe_accuracy(flat, labels, flat, labels) == pytest.approx(1 / 3)
    # Far from zero, where single precision would lose the difference.
    assert probe_accuracy(features + 1000, labels, features + 1000, labels) == 1.0
