"""The control draws each genotype with the same probability, of its seed alone; the space knows what is of it."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Hashable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from support.tiny import all_threads, one_thread

from seu_bench_kit.search_space import EDGES, GENOTYPES, OPERATIONS, Edge, Genotype, SearchSpace, uniform_genotype

setup_module, teardown_module = one_thread, all_threads


SPACES = [SearchSpace(edges, kinds) for edges in ("top2", "all14") for kinds in (1, 2)]
every_space = pytest.mark.parametrize("space", SPACES, ids=lambda space: f"{space.edges}-{space.cell_types}")


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


# --- the searcher -------------------------------------------------------------------------------------------------


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
