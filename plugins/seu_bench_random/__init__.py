"""The control for every search: a genotype at random. The smallest searcher, made to be copied.

This module is imported to list what is installed, so it imports no torch; :mod:`seu_bench_random.searcher` does.
"""

from __future__ import annotations

from seu_bench import Register, hookimpl
from seu_bench.config import Options
from seu_bench_kit import SearcherFactory


class RandomOptions(Options):
    """None: there is nothing to choose."""


@hookimpl
def register_searchers(register: Register[SearcherFactory]) -> None:
    """Offer ``random``."""
    register(
        "random",
        SearcherFactory(
            "a genotype drawn uniformly, nothing is trained: what every search must beat",
            options=RandomOptions,
            build="seu_bench_random.searcher:RandomSearch",
        ),
    )
