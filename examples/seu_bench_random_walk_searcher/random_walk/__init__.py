"""The light half: what seu-bench imports to list what is installed. No torch here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from seu_bench import hookimpl
from seu_bench.config.common_options import NetworkOptions
from seu_bench.training.costing import half_passes

if TYPE_CHECKING:
    from seu_bench.config.options import Options
    from seu_bench.config.protocol import SearchSchedule
    from seu_bench.plugin.registration import Register
    from seu_bench.search_space import Genotype
    from seu_bench.training.interfaces import SearcherFactory, SearchTask
    from seu_bench.training.stage import Stage


class RandomWalkOptions(NetworkOptions):
    """The schedule's options (epochs, batch_size, ...), the proxy's size, and one of our own."""

    edges: int = Field(1, ge=1, description="edges that a step of the walk may change in each form")


class RandomWalkFactory:
    """A searcher, as seu-bench sees it before anything is built."""

    summary = "walks from architecture to architecture, a few edges at a time, and stays where it is better"
    options: type[Options] = RandomWalkOptions

    def build(self, options: RandomWalkOptions, task: SearchTask) -> Stage[Genotype]:
        """The search stage of a task."""
        from random_walk.searcher import RandomWalk

        return RandomWalk(options, task)

    def estimate_passes(
        self,
        options: RandomWalkOptions,
        schedule: SearchSchedule,
        train_images: int,
    ) -> tuple[int, int]:
        """Half of the images train and half are scored in every epoch."""
        return half_passes(options.applied_to(schedule).epochs, train_images)


@hookimpl
def register_searchers(register: Register[SearcherFactory]) -> None:
    """Offer ``random_walk``."""
    register("random_walk", RandomWalkFactory())
