"""The contract of every searcher, on this one, and what it alone does: pytest test_random_walk.py."""

from __future__ import annotations

from random_walk import RandomWalkOptions
from random_walk.searcher import RandomWalk

from seu_bench.testing import stream_of
from seu_bench_kit import SearchSpace
from seu_bench_kit.contracts import SearcherContract, search_task


class TestRandomWalk(SearcherContract):
    """Every test is inherited."""

    searcher = "random_walk"


def test_steps_are_short() -> None:
    """A neighbour differs in one operation of each form, at most."""
    task = search_task(stream_of("tiny_two"), space=SearchSpace())
    walk = RandomWalk(RandomWalkOptions(), task)
    start = walk.best
    step = walk.neighbour(start)
    for before, after in ((start.normal, step.normal), (start.reduction, step.reduction)):
        assert sum(one != other for one, other in zip(before, after, strict=True)) <= 1
