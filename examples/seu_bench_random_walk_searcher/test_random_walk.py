"""The contract of every searcher, on this one, and what it alone does: pytest test_random_walk.py."""

from __future__ import annotations

from random_walk import RandomWalkOptions
from random_walk.searcher import RandomWalk

from seu_bench.testing import stream_of
from seu_bench_kit.contracts import SearcherContract, search_task
from seu_bench_kit.dense import DenseSpace


class TestRandomWalk(SearcherContract):
    """Every test is inherited."""

    searcher = "random_walk"


def test_steps_are_short() -> None:
    """A neighbour differs in one decision."""
    task = search_task(stream_of("tiny_two"), space=DenseSpace())
    walk = RandomWalk(RandomWalkOptions(), task)
    decisions = [task.space.encode(it) for it in (walk.best, walk.neighbour(walk.best))]
    assert sum(one != other for one, other in zip(*decisions, strict=True)) == 1
