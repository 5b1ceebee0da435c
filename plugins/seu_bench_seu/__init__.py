"""SEU: the strategy, its multinomial searcher and its multinomial task-model creator."""

from __future__ import annotations

from seu_bench import hookimpl
from seu_bench.plugin.registration import Register
from seu_bench.training.interfaces import CreatorFactory, SearcherFactory, StrategyFactory
from seu_bench_seu.factories import MdlCreatorFactory, MdlSearcherFactory, SeuFactory


@hookimpl
def register_strategies(register: Register[StrategyFactory]) -> None:
    """Offer ``seu``."""
    register("seu", SeuFactory())


@hookimpl
def register_searchers(register: Register[SearcherFactory]) -> None:
    """Offer ``mdl``."""
    register("mdl", MdlSearcherFactory())


@hookimpl
def register_creators(register: Register[CreatorFactory]) -> None:
    """Offer ``mdl``."""
    register("mdl", MdlCreatorFactory())
