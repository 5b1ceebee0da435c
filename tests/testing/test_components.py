"""Every searcher and every creator that comes with seu-bench holds to the contract that a stranger's must hold to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from seu_bench.plugin.registry import Registry
from seu_bench.testing import Trial
from seu_bench_kit.contracts import CreatorContract, SearcherContract, component_trial

#: By the name of a case: the component and the options of its trial.
SEARCHERS = {
    "mdl": ("mdl", {}),
    "darts": ("darts", {"epochs": 1}),
    "blockwise": ("blockwise", {}),
    "inherit": ("inherit", {}),
    "random": ("random", {}),
    "zero_cost": ("zero_cost", {"candidates": 3}),
    "zero_cost of one score": ("zero_cost", {"candidates": 3, "score": "naswot"}),
    "evolution": ("evolution", {"population": 1}),
}
CREATORS = ("mdl", "adapt", "all_new", "reuse_first", "frugal", "knn_prefix", "inherit")


def each(cases: Iterable[str]) -> list[Any]:
    """Parameters of a matrix: the cheapest for ``make test``, the others for ``make test-long``."""
    return [pytest.param(case, marks=[] if case == "random" else pytest.mark.long) for case in cases]


@pytest.mark.parametrize("case", each(SEARCHERS))
class TestSearchers(SearcherContract):
    """All of ours, some of them in two ways."""

    @pytest.fixture
    def trial(self, case: str) -> Trial:
        """The case on trial."""
        name, options = SEARCHERS[case]
        return component_trial("searcher", name, options)


@pytest.mark.parametrize("name", each(CREATORS))
class TestCreators(CreatorContract):
    """All of ours."""

    @pytest.fixture
    def trial(self, name: str) -> Trial:
        """The creator on trial; those that compare paths measure as many images as there are paths, at most."""
        return component_trial("creator", name, {}, exact_passes=name not in ("frugal", "inherit", "knn_prefix"))


def test_all_of_them_are_tried() -> None:
    """No searcher or creator is offered that the tests above leave out."""
    registry = Registry()
    assert {name for name, _ in SEARCHERS.values()} == set(registry.searchers)
    assert set(CREATORS) == set(registry.creators)
