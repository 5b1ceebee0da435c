"""The control draws each genotype with the same probability, of its seed alone; the space knows what is of it."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from support.components import GENOTYPES, PATHS, all_of, announced, creation, grown, task_of
from support.tiny import class_stream, genotype, image_shape

from seu_bench.testing import Trial
from seu_bench_creators import InheritOptions, InheritSearchOptions, estimate_inherit
from seu_bench_creators.inherit import InheritCreation, InheritSearch
from seu_bench_kit import CreationTask, SearchTask, fit_head, knn_accuracy, ridge_accuracy
from seu_bench_kit.cells import CellSpace
from seu_bench_kit.contracts import SEARCH
from seu_bench_kit.genotypes import GENOTYPES as PUBLISHED
from seu_bench_kit.genotypes import OPERATIONS, Edge, Genotype, uniform_genotype
from seu_bench_kit.transferability import DECAY
from seu_bench_seu.strategy import Seu
from seu_bench_seu.super_model import SuperModel


@cache
def drawn(space: CellSpace, count: int, seed: int = 0) -> list[Genotype]:
    below = random.Random(seed).randrange
    return [space.random_genotype(below) for _ in range(count)]


def assert_uniform(values: Sequence[Hashable], possible: Sequence[Hashable]) -> None:
    """Pearson's statistic lies within five standard deviations of its mean: it has mean df and variance 2 df."""
    counts = Counter(values)
    assert set(counts) <= set(possible)
    expected = len(values) / len(possible)
    assert expected >= 20, "too few draws for the statistic to mean anything"
    statistic = sum((counts[value] - expected) ** 2 / expected for value in possible)
    freedom = len(possible) - 1
    assert statistic <= freedom + 5 * math.sqrt(2 * freedom)


@pytest.mark.parametrize("kind", ["normal", "reduction"])
@pytest.mark.parametrize("node", [2, 3, 4, 5])
def test_top2_is_uniform(node: int, kind: Any) -> None:
    """Each pair of sources of a node is as likely as any other, and so is each pair of operations on them."""
    edges = [
        [edge for edge in genotype.edges(kind) if edge.node == node] for genotype in drawn(CellSpace("top2"), 3000)
    ]
    pairs = list(itertools.combinations(range(node), 2))
    assert_uniform([(first.source, second.source) for first, second in edges], pairs)
    operations = list(itertools.product(OPERATIONS[1:], repeat=2))
    assert_uniform([(first.operation, second.operation) for first, second in edges], operations)
    # Sources and operations together: neither depends on the other.
    both = [(first.source, second.source, first.operation) for first, second in edges]
    assert_uniform(both, [(*pair, operation) for pair in pairs for operation in OPERATIONS[1:]])


def test_all14_is_uniform() -> None:
    """Each operation, ``none`` too, is as likely as any other on every edge, whatever the edge before carries."""
    genotypes = drawn(CellSpace("all14"), 3000)
    for kind in ("normal", "reduction"):
        rows = [[edge.operation for edge in genotype.edges(kind)] for genotype in genotypes]
        for row in range(14):
            assert_uniform([operations[row] for operations in rows], OPERATIONS)
        pairs = list(itertools.product(OPERATIONS, repeat=2))
        for row in range(13):
            assert_uniform([(operations[row], operations[row + 1]) for operations in rows], pairs)


def changed(form: tuple[Edge, ...], row: int, *edges: Edge) -> tuple[Edge, ...]:
    return (*form[:row], *edges, *form[row + 1 :])


TOP2 = PUBLISHED["darts_v1"]
ALL14 = uniform_genotype("none", "all14")


@pytest.mark.parametrize(
    ("space", "genotype", "message"),
    [
        (CellSpace(), None, "it is no Genotype but NoneType"),
        (CellSpace(), TOP2.to_dict(), "it is no Genotype but dict"),
        (
            CellSpace(cell_types=1),
            TOP2,
            "its normal and its reduction form differ, and with cell_types=1 they are one",
        ),
        (CellSpace("all14"), TOP2, "it has 8 edges in place of 14"),
        (CellSpace("all14"), Genotype(ALL14.normal, ALL14.normal[1:]), "it has 13 edges in place of 14"),
        (CellSpace(), ALL14, "node 3 has 3 edges in place of 2"),
        (CellSpace(), Genotype(changed(TOP2.normal, 7), TOP2.normal), "node 5 has 1 edges in place of 2"),
        (CellSpace(), Genotype(TOP2.normal, changed(TOP2.normal, 7)), "node 5 has 1 edges in place of 2"),
        (
            CellSpace(),
            Genotype(TOP2.normal, changed(TOP2.reduction, 0, Edge(2, 0, "none"))),
            "'none' is on an edge, and edges=top2 never chooses it",
        ),
    ],
)
def test_faults(space: CellSpace, genotype: Any, message: str) -> None:
    """Entries outside the space are named, in the form that has them."""
    fault = space.fault(genotype)
    assert fault is not None and fault.startswith(message)


#: Paths that end in different units.
APART = ((0, 0, 0, 0), (1, 1, 1, 1))
NEWEST = (2, 2, 2, 2)
MANY = class_stream([[0, 1], [2, 3], [4, 5]], images=60)


def inherit(model: SuperModel | None = None, task: int = 2, **options: Any) -> InheritCreation:
    """A stage of so many epochs that all images may be scored."""
    return InheritCreation(InheritOptions(**options), asked(model or alike(), task))


def asked(model: SuperModel, task: int = 2) -> CreationTask:
    """More images than neighbours that vote."""
    return replace(task_of(model, task, epochs=30), images=MANY.tasks[task].train)


def alike(task: int = 2, *, stem: str = "selectable", paths: Sequence[Sequence[int]] = APART) -> SuperModel:
    """A super model whose new units have the genotype of the first task's."""
    model = grown(task, stem=stem, paths=paths)
    model.keep(task, [0] * 4)
    del model.paths[task]
    model.expand(genotype(GENOTYPES[0]), task)
    return model


def weights_of(model: SuperModel, path: Sequence[int]) -> list[dict[str, torch.Tensor]]:
    """Copies of the units' states on a path."""
    return [
        {name: value.clone() for name, value in model.unit(layer, index).state_dict().items()}
        for layer, index in enumerate(path)
    ]


def equal(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    """Whether two states have the same tensors by the same names."""
    return left.keys() == right.keys() and all(torch.equal(value, right[name]) for name, value in left.items())


def dead(model: SuperModel, path: Sequence[int]) -> None:
    """Make the features of a path tell nothing: its last unit gives zeros."""
    for tensor in model.unit(3, path[3]).state_dict().values():
        tensor.zero_()


def test_genotype_goes_on() -> None:
    """The first task's is drawn of the seed alone; later tasks have it, whatever their seed."""
    images, space = class_stream([[0, 1], [2, 3]], images=8).tasks[0].train, CellSpace()

    def found(seed: int, earlier: Sequence[Any] = ()) -> Any:
        task = SearchTask(images, len(earlier), 2, image_shape(), space, SEARCH, seed, torch.device("cpu"), earlier)
        return InheritSearch(InheritSearchOptions(), task).run()

    first = found(3)
    assert found(3) == first and space.fault(first) is None and len({found(seed) for seed in range(8)}) == 8
    others = tuple(PUBLISHED.values())[:2]
    assert found(4, (first, *others)) == first


@pytest.mark.parametrize("quiet", [0, 1])
def test_copies(quiet: int) -> None:
    """New units of the related units' genotype have their weights and statistics; old units stay, bit by bit."""
    model = alike()
    dead(model, APART[quiet])
    before, fresh = model.frozen_state(), weights_of(model, NEWEST)
    stage = inherit(model)
    path = stage.run()
    assert path == NEWEST and model.frozen_fault(before) is None
    related = weights_of(model, APART[1 - quiet])
    # Of the second task's path only the stem is of one shape with the new units.
    for layer, new in enumerate(weights_of(model, NEWEST)):
        wanted = related[layer] if quiet == 1 or layer == 0 else fresh[layer]
        assert equal(new, wanted)
        assert not equal(related[layer], fresh[layer])


@pytest.mark.parametrize("stem", ["selectable", "shared"])
@pytest.mark.parametrize("shared", [0, 1, 3, 4, 9])
def test_shared_layers(shared: int, stem: str) -> None:
    """The first layers are the related path's, as many as there are at most."""
    model = alike(stem=stem)
    stage = inherit(model, shared=shared)
    path = stage.run()
    new = [count - 1 for count in model.candidates]
    assert path == (*stage.related[:shared], *new[shared:])


@pytest.mark.parametrize(("relation", "accuracy"), [("ridge", ridge_accuracy), ("knn", knn_accuracy)])
def test_scores(relation: str, accuracy: Any) -> None:
    """A classifier is fitted on the first half of the images and measured on the second."""
    model = alike()
    dead(model, APART[0])
    stage = inherit(model, relation=relation, images=30)
    stage.advance()
    x, y = all_of(asked(model).images.part(0, 30))
    model.eval()
    with torch.no_grad():
        features = [model.features(x, path) for path in (APART[1], APART[0])]
    expected = [accuracy(rows[:15], y[:15], rows[15:], y[15:]) for rows in features]
    assert stage.scores == pytest.approx(expected)
    assert stage.image_passes == 60


@pytest.mark.parametrize("images", [20, 6])
@pytest.mark.parametrize("epochs", [1, 4, 30])
@pytest.mark.parametrize("task", [1, 2, 4])
def test_budget(epochs: int, images: int, task: int) -> None:
    """A tenth of what a creation would pass forward, for all earlier paths together, at most; none for one path."""
    stage = creation("inherit", grown(task, paths=PATHS), task, epochs=epochs, images=images)
    stage.run()
    most = announced("inherit", epochs=epochs, images=images)
    assert most == epochs * images // 10 and stage.image_passes <= most
    each = min(most // task, images)
    assert stage.image_passes == (each * task if task > 1 and each > 1 else 0)


def test_equal_scores() -> None:
    """Of equal scores the latest task's path is taken; so it is where nothing is scored."""
    model = alike()
    for path in APART:
        dead(model, path)
    stage = inherit(model)
    stage.advance()
    assert stage.scores[0] == stage.scores[1] and stage.related == APART[1]
    for options in ({"relation": "latest"}, {"images": 0}, {"images": 1}):
        stage = inherit(alike(), **options)
        stage.run()
        assert stage.scores == [] and stage.related == APART[1] and stage.image_passes == 0


def test_head_of_logistic_regression() -> None:
    """As scikit-learn fits one, by another solver, to standardised features."""
    made = torch.Generator().manual_seed(0)
    y = torch.arange(90) % 3
    x = torch.randn(90, 5, generator=made) * torch.tensor([1.0, 10.0, 0.1, 1.0, 1.0]) + y[:, None]
    head = torch.nn.Linear(5, 3)
    fit_head(head, x, y)
    rows = StandardScaler().fit_transform(x.double().numpy())
    known = LogisticRegression(C=1 / (2 * DECAY * len(y)), tol=1e-8, max_iter=10_000).fit(rows, y.numpy())
    found = head(x).softmax(dim=1).detach().double().numpy()
    np.testing.assert_allclose(found, known.predict_proba(rows), atol=1e-4)


@pytest.mark.parametrize("copies", [True, False])
def test_probe(copies: bool) -> None:
    """The head is fitted on the features that training begins with, of all images; nothing that is frozen changes."""
    model = alike()
    before, untouched = model.frozen_state(), weights_of(model, NEWEST)
    stage = inherit(model, relation="latest", probe=True, copies=copies)
    path, images = stage.run(), asked(model).images
    assert path == NEWEST and model.frozen_fault(before) is None
    most = InheritOptions(relation="latest", probe=True)
    assert stage.image_passes == estimate_inherit(most, asked(model).schedule, len(images))[1] > len(images)
    stem, wanted = weights_of(model, NEWEST)[0], (weights_of(model, APART[1]) if copies else untouched)[0]
    for name, value in stem.items():  # weights are copied, statistics are those of this task's images
        assert torch.equal(value, wanted[name]) == ("running" not in name and "num_batches" not in name), name
    x, y = all_of(images)
    model.eval()
    head = torch.nn.Linear(model.heads[2].in_features, 2)
    with torch.no_grad():
        fit_head(head, model.features(x, path), y)
    torch.testing.assert_close(model.heads[2].weight, head.weight)


@pytest.mark.parametrize("keep", [True, False])
def test_start_may_be_kept(keep: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no epoch has a lower validation loss; the first task begins with nothing."""
    options = {"genotype": "darts_v1", "creator.probe": True, "keep_start": keep}
    learner, begun, calls = Trial("seu", options, creator="inherit").learner("tiny_two"), list[Any](), list[int]()

    def rising(strategy: Any, task: Any, _: Any) -> float:
        calls.append(task.index)
        begun.append({name: value.clone() for name, value in strategy.trained_module(task).state_dict().items()})
        return float(len(calls))

    monkeypatch.setattr(Seu, "validation_loss", rising)
    learner.learn_all()
    model = learner.strategy.model
    assert calls == [0] * 2 + [1] * (2 + keep)
    assert equal(begun[2], model.task_module(1).state_dict())
