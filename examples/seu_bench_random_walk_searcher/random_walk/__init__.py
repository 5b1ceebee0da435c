"""The light half: what seu-bench imports to list what is installed. No torch here."""

from __future__ import annotations

from pydantic import Field

from seu_bench import Register, hookimpl
from seu_bench.config import NetworkOptions, ScoringOptions
from seu_bench_kit import SearcherFactory, schedule_passes


class RandomWalkOptions(ScoringOptions, NetworkOptions):
    """The schedule's options (epochs, batch_size, ...), the proxy's size, and one of our own."""

    mutations: int = Field(1, ge=1, description="decisions that a step of the walk makes anew")


@hookimpl
def register_searchers(register: Register[SearcherFactory]) -> None:
    """Offer ``random_walk``."""
    register(
        "random_walk",
        SearcherFactory(
            "walks from architecture to architecture, a few decisions at a time, and stays where it is better",
            options=RandomWalkOptions,
            build="random_walk.searcher:RandomWalk",
            estimate_passes=schedule_passes,
        ),
    )
