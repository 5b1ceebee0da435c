"""Contracts that any plugin, ours or a stranger's, runs on itself, and tiny streams to run them on.

An implementer writes a test file such as ::

    from seu_bench.testing import StrategyContract

    class TestMine(StrategyContract):
        strategy = "mine"

and runs pytest on it; likewise :class:`SearcherContract` with ``searcher`` and :class:`CreatorContract` with
``creator``. ``seu-bench check-plugin NAME`` does it without a file. pytest is needed here and nowhere else.
"""

from __future__ import annotations

try:
    import pytest as _pytest  # noqa: F401
except ImportError as error:
    raise ImportError("seu_bench.testing needs pytest, which seu-bench does not bring: pip install pytest") from error

from seu_bench.testing.component_contract import CreatorContract, SearcherContract
from seu_bench.testing.contract import FrozenGrowthContract, StrategyContract
from seu_bench.testing.trial import Learner, Trial

__all__ = [
    "CreatorContract",
    "FrozenGrowthContract",
    "Learner",
    "SearcherContract",
    "StrategyContract",
    "Trial",
]
