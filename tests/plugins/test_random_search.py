"""The control draws each genotype with the same probability, of its seed alone; the space knows what is of it."""

from __future__ import annotations

import io
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from support.tiny import all_threads, class_stream, disturb, one_thread, registry

from seu_bench.config.protocol import SearchSchedule
from seu_bench.training.stage import StageProgress
from seu_bench_kit.components import SearchTask
from seu_bench_kit.search_space import EDGES, GENOTYPES, OPERATIONS, Edge, Genotype, SearchSpace, uniform_genotype
from seu_bench_random import RandomOptions
from seu_bench_random.searcher import RandomSearch

setup_module, teardown_module = one_thread, all_threads

CPU = torch.device("cpu")
STREAM = class_stream([[0, 1], [2, 3]], images=13)
SCHEDULE = SearchSchedule(epochs=4, batch_size=8, cells=3, channels=2)
SPACES = [SearchSpace(edges, kinds) for edges in ("top2", "all14") for kinds in (1, 2)]
every_space = pytest.mark.parametrize("space", SPACES, ids=lambda space: f"{space.edges}-{space.cell_types}")


def search(seed: int = 3, space: SearchSpace | None = None, task: int = 1, schedule: SearchSchedule = SCHEDULE) -> Any:
    given = SearchTask(STREAM.tasks[task].train, task, 2, space or SearchSpace(), schedule, seed, CPU)
    return RandomSearch(RandomOptions(), given)


@cache
def drawn(space: SearchSpace, count: int, seed: int = 0) -> list[Genotype]:
    below = random.Random(seed).randrange
    return [space.random_genotype(below) for _ in range(count)]


def is_of(space: SearchSpace, genotype: Genotype) -> bool:
    """Written anew from the definition of the space."""
    if space.cell_types == 1 and genotype.normal != genotype.reduction:
        return False
    for form in (genotype.normal, genotype.reduction):
        places = [(edge.node, edge.source) for edge in form]
        if len(set(places)) != len(places) or any(source >= node for node, source in places):
            return False
        if space.edges == "all14" and set(places) != {
            (node, source) for node in (2, 3, 4, 5) for source in range(node)
        }:
            return False
        if space.edges == "top2" and (
            Counter(node for node, _ in places) != {2: 2, 3: 2, 4: 2, 5: 2}
            or any(edge.operation == "none" for edge in form)
        ):
            return False
    return True


def assert_uniform(values: Sequence[Hashable], possible: Sequence[Hashable]) -> None:
    """Pearson's statistic lies within five standard deviations of its mean: it has mean df and variance 2 df."""
    counts = Counter(values)
    assert set(counts) <= set(possible)
    expected = len(values) / len(possible)
    assert expected >= 20, "too few draws for the statistic to mean anything"
    statistic = sum((counts[value] - expected) ** 2 / expected for value in possible)
    freedom = len(possible) - 1
    assert statistic <= freedom + 5 * math.sqrt(2 * freedom)


# --- drawing ------------------------------------------------------------------------------------------------------


@every_space
def test_drawn_genotypes_are_of_the_space(space: SearchSpace) -> None:
    """Each has the edges and operations that the space allows, and the forms that its cell types say."""
    genotypes = drawn(space, 300)
    assert all(is_of(space, genotype) for genotype in genotypes)
    assert all(space.fault(genotype) is None for genotype in genotypes)
    assert len(set(genotypes)) == 300
    assert all((genotype.normal == genotype.reduction) == (space.cell_types == 1) for genotype in genotypes)


@pytest.mark.parametrize("kind", ["normal", "reduction"])
@pytest.mark.parametrize("node", [2, 3, 4, 5])
def test_top2_is_uniform(node: int, kind: Any) -> None:
    """Each pair of sources of a node is as likely as any other, and so is each pair of operations on them."""
    edges = [
        [edge for edge in genotype.edges(kind) if edge.node == node] for genotype in drawn(SearchSpace("top2"), 3000)
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
    genotypes = drawn(SearchSpace("all14"), 3000)
    for kind in ("normal", "reduction"):
        rows = [[edge.operation for edge in genotype.edges(kind)] for genotype in genotypes]
        for row in range(14):
            assert_uniform([operations[row] for operations in rows], OPERATIONS)
        pairs = list(itertools.product(OPERATIONS, repeat=2))
        for row in range(13):
            assert_uniform([(operations[row], operations[row + 1]) for operations in rows], pairs)


def test_forms_are_drawn_apart() -> None:
    """The normal form's entries say nothing about the reduction form."""
    pairs = [(g.normal[0].operation, g.reduction[0].operation) for g in drawn(SearchSpace("all14"), 3000)]
    assert_uniform(pairs, list(itertools.product(OPERATIONS, repeat=2)))


def test_the_bound_would_notice() -> None:
    """The statistic's bound is crossed by a draw with replacement that is sorted, and by one operation left out."""
    generator = random.Random(0)
    skewed = [tuple(sorted(generator.choices(range(3), k=2))) for _ in range(6000)]
    with pytest.raises(AssertionError):
        assert_uniform(skewed, list(itertools.combinations_with_replacement(range(3), 2)))
    with pytest.raises(AssertionError):
        assert_uniform([generator.choice(OPERATIONS[1:]) for _ in range(3000)], OPERATIONS)


@every_space
def test_draws_by_pythons_generator(space: SearchSpace) -> None:
    """By default Python's global generator draws, which a stage seeds."""
    random.seed(5)
    first = [space.random_genotype() for _ in range(3)]
    random.seed(5)
    assert [space.random_genotype() for _ in range(3)] == first
    assert drawn(space, 3, seed=5) == first


# --- the searcher -------------------------------------------------------------------------------------------------


@every_space
def test_depends_on_the_seed_alone(space: SearchSpace) -> None:
    """The same seed gives the same genotype, whatever was drawn outside, whatever the images and the schedule are."""
    expected = search(space=space).run()
    assert is_of(space, expected)
    disturb()
    made = search(space=space)
    disturb()
    assert made.run() == expected
    assert search(space=space, task=0, schedule=SearchSchedule()).run() == expected
    results = [search(seed=seed, space=space).run() for seed in range(20)]
    assert results[3] == expected and len(set(results)) == 20


def test_disturbs_nothing_outside() -> None:
    """The global generators stand after a search where they stood before."""
    disturb()
    expected = [torch.rand(2).tolist(), np.random.rand(2).tolist(), random.random()]
    disturb()
    search().run()
    assert [torch.rand(2).tolist(), np.random.rand(2).tolist(), random.random()] == expected


@every_space
def test_resumes(space: SearchSpace) -> None:
    """A stage that loads another's state draws what that one draws."""
    first = search(space=space)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    # Another seed: what it draws must come from the state.
    second = search(seed=8, space=space)
    assert search(seed=8, space=space).run() != first.run()
    second.load_state_dict(torch.load(file, weights_only=True))
    assert second.run() == search(space=space).run()


def test_passes_nothing() -> None:
    """No image is looked at, as the factory says, and the watcher is told of the end."""
    seen: list[StageProgress] = []
    stage = search()
    stage.run(seen.append)
    assert registry().searchers.find("random").factory.estimate_passes(RandomOptions(), SCHEDULE, 19) == (0, 0)
    assert stage.image_passes == 0 and stage.epochs == 0 and seen[-1].done


# --- what is of the space -----------------------------------------------------------------------------------------


def changed(form: tuple[Edge, ...], row: int, *edges: Edge) -> tuple[Edge, ...]:
    return (*form[:row], *edges, *form[row + 1 :])


TOP2 = GENOTYPES["darts_v1"]
ALL14 = uniform_genotype("none", "all14")


@pytest.mark.parametrize(
    ("space", "genotype", "message"),
    [
        (SearchSpace(), None, "it is no Genotype but NoneType"),
        (SearchSpace(), TOP2.to_dict(), "it is no Genotype but dict"),
        (
            SearchSpace(cell_types=1),
            TOP2,
            "its normal and its reduction form differ, and with cell_types=1 they are one",
        ),
        (SearchSpace("all14"), TOP2, "it has 8 edges in place of 14"),
        (SearchSpace("all14"), Genotype(ALL14.normal, ALL14.normal[1:]), "it has 13 edges in place of 14"),
        (SearchSpace(), ALL14, "node 3 has 3 edges in place of 2"),
        (SearchSpace(), Genotype(changed(TOP2.normal, 7), TOP2.normal), "node 5 has 1 edges in place of 2"),
        (SearchSpace(), Genotype(TOP2.normal, changed(TOP2.normal, 7)), "node 5 has 1 edges in place of 2"),
        (
            SearchSpace(),
            Genotype(TOP2.normal, changed(TOP2.reduction, 0, Edge(2, 0, "none"))),
            "'none' is on an edge, and edges=top2 never chooses it",
        ),
    ],
)
def test_faults(space: SearchSpace, genotype: Any, message: str) -> None:
    """Entries outside the space are named, in the form that has them."""
    fault = space.fault(genotype)
    assert fault is not None and fault.startswith(message)


@pytest.mark.parametrize(
    ("space", "genotype"),
    [
        *((SearchSpace(), genotype) for genotype in GENOTYPES.values()),
        (SearchSpace("all14"), ALL14),
        (SearchSpace("all14", 1), ALL14),
        (SearchSpace(cell_types=1), Genotype(TOP2.normal, TOP2.normal)),
    ],
)
def test_no_fault(space: SearchSpace, genotype: Genotype) -> None:
    """The published genotypes are of the default space; ``none`` is allowed with every edge kept."""
    assert space.fault(genotype) is None


@every_space
@pytest.mark.parametrize("table", [0, -1])
@pytest.mark.parametrize("place", [(0, 0), (13, 7)])
def test_tables_with_nan_are_refused(space: SearchSpace, table: int, place: tuple[int, int]) -> None:
    """NaN anywhere, ``none`` included, is refused: no rule can rank it. Infinite values can be ranked."""
    tables = [np.random.default_rng(0).random((len(EDGES), 8)) for _ in range(space.cell_types)]
    tables[table][place] = math.inf
    assert space.fault(space.derive(tables)) is None
    tables[table][place] = math.nan
    with pytest.raises(ValueError, match="a table of operations holds NaN"):
        space.derive(tables)


def test_any_generator_will_do() -> None:
    """``below`` is asked for numbers below what there is to choose from, and each answer is used."""
    asked: list[int] = []

    def last(count: int) -> int:
        asked.append(count)
        return count - 1

    below: Callable[[int], int] = last
    found = SearchSpace(cell_types=1).random_genotype(below)
    assert [(edge.node, edge.source) for edge in found.normal] == [
        (node, source) for node in (2, 3, 4, 5) for source in (node - 2, node - 1)
    ]
    assert {edge.operation for edge in found.normal} == {OPERATIONS[-1]}
    assert sorted(asked) == sorted([2, 1, 3, 2, 4, 3, 5, 4, *[7] * 8])
    assert {edge.operation for edge in SearchSpace("all14").random_genotype(lambda _: 0).reduction} == {"none"}
