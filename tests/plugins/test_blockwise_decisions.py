"""Decisions of Q-learning: every sequence is a genotype, and every genotype is reached."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import Any

import pytest
from support.tiny import all_threads, one_thread

from seu_bench_blockwise.decisions import decision_sizes, decoded
from seu_bench_kit.search_space import EDGES, OPERATIONS, SearchSpace

setup_module, teardown_module = one_thread, all_threads


@pytest.mark.parametrize("kinds", [1, 2])
def test_top2_decisions_reach_everything(kinds: Any) -> None:
    """All decisions of a node make each pair of sources with each pair of operations, each in two orders; other
    nodes and the other form stay as they are."""
    space = SearchSpace("top2", kinds)
    sizes = decision_sizes(space)
    base = decoded(space, [0] * len(sizes))
    for form, node in itertools.product(range(kinds), (2, 3, 4, 5)):
        start = 16 * form + 4 * (node - 2)
        assert sizes[start : start + 4] == (node, 7, node - 1, 7)
        reached: Counter[Any] = Counter()
        for choice in itertools.product(*(range(size) for size in sizes[start : start + 4])):
            genotype = decoded(space, [*[0] * start, *choice, *[0] * (len(sizes) - start - 4)])
            changed, other = (genotype.normal, genotype.reduction)[:: -1 if form else 1]
            reached[tuple((edge.source, edge.operation) for edge in changed if edge.node == node)] += 1
            assert [e for e in changed if e.node != node] == [e for e in base.normal if e.node != node]
            assert other == (base.reduction if kinds == 2 else changed)
        pairs = itertools.combinations(range(node), 2)
        operations = list(itertools.product(OPERATIONS[1:], repeat=2))
        assert set(reached) == {((a, p), (b, q)) for a, b in pairs for p, q in operations}
        assert set(reached.values()) == {2}


@pytest.mark.parametrize("kinds", [1, 2])
def test_all14_decisions_reach_everything(kinds: Any) -> None:
    """Each decision is the operation of one edge, ``none`` too: a sequence for every genotype and only one."""
    space = SearchSpace("all14", kinds)
    assert decision_sizes(space) == (8,) * (14 * kinds)
    generator = random.Random(0)
    for _ in range(100):
        sequence = [generator.randrange(8) for _ in range(14 * kinds)]
        genotype = decoded(space, sequence)
        for form, chosen in ((genotype.normal, sequence[:14]), (genotype.reduction, sequence[-14:])):
            assert form == tuple((*edge, OPERATIONS[index]) for edge, index in zip(EDGES, chosen, strict=True))


def test_decoding_by_hand() -> None:
    """The second source is counted among those that are left, and edges are in the order of their sources."""
    sequence = [1, 0, 0, 6, 2, 3, 1, 0, 0, 1, 0, 2, 4, 5, 3, 4]
    found = decoded(SearchSpace(cell_types=1), sequence)
    assert [tuple(edge) for edge in found.normal] == [
        (2, 0, "dil_conv_5x5"),
        (2, 1, "max_pool_3x3"),
        (3, 1, "max_pool_3x3"),
        (3, 2, "sep_conv_3x3"),
        (4, 0, "avg_pool_3x3"),
        (4, 1, "skip_connect"),
        (5, 3, "sep_conv_5x5"),
        (5, 4, "dil_conv_3x3"),
    ]
