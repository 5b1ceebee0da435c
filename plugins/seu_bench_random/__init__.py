"""The control for every search: a genotype at random. The smallest searcher, made to be copied.

This module is imported to list what is installed, so it imports no torch; :mod:`seu_bench_random.searcher` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seu_bench import hookimpl
from seu_bench.config.options import Options
from seu_bench.config.protocol import SearchSchedule
from seu_bench.plugin.registration import Register
from seu_bench.training.interfaces import SearcherFactory, SearchTask

if TYPE_CHECKING:
    from seu_bench.search_space import Genotype
    from seu_bench.training.stage import Stage


class RandomOptions(Options):
    """None: there is nothing to choose."""


class RandomFactory:
    """A uniformly drawn genotype per task."""

    summary = "a genotype drawn uniformly, nothing is trained: what every search must beat"
    options: type[Options] = RandomOptions

    def build(self, options: RandomOptions, task: SearchTask) -> Stage[Genotype]:
        """The search stage of a task."""
        from seu_bench_random.searcher import RandomSearch

        return RandomSearch(task)

    def estimate_passes(self, options: RandomOptions, schedule: SearchSchedule, train_images: int) -> tuple[int, int]:
        """No image is looked at."""
        return 0, 0


@hookimpl
def register_searchers(register: Register[SearcherFactory]) -> None:
    """Offer ``random``."""
    register("random", RandomFactory())
