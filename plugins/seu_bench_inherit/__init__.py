"""Growth by inheritance: a new task's units begin as copies of the most related earlier task's.

This module is imported to list what is installed, so it imports no torch.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import Field, NonNegativeInt

from seu_bench import Register, hookimpl
from seu_bench.config import CreationSchedule, Options
from seu_bench_kit import CreatorFactory, SearcherFactory

#: How the related task is found; all but ``latest`` score features without training.
Relation: TypeAlias = Literal["ridge", "knn", "h_score", "log_evidence", "latest"]


class InheritSearchOptions(Options):
    """None: there is nothing to choose."""


class InheritOptions(Options):
    """Options of the choice of what is inherited."""

    relation: Relation = Field(
        "ridge", description="score of an earlier path's features by which the related task is found, or `latest`"
    )
    images: NonNegativeInt = Field(
        512, description="training images, at most, on which each earlier path is scored; 0: the latest is related"
    )
    shared: NonNegativeInt = Field(
        0, description="layers, from the first, that are reused as they are in place of copied"
    )
    copies: bool = Field(True, description="whether new units begin as copies, or as they were initialised")


def estimate_passes(options: InheritOptions, schedule: CreationSchedule, train_images: int) -> tuple[int, int]:
    """Announce the images that are scored, for all earlier paths together: at most a tenth of what the schedule would
    pass forward; nothing trains."""
    return 0, passes(schedule, train_images) if options.relation != "latest" and options.images else 0


def passes(schedule: CreationSchedule, train_images: int) -> int:
    """A tenth of the images that a creator would pass forward that trains for the schedule's epochs."""
    return schedule.epochs * train_images // 10


@hookimpl
def register_searchers(register: Register[SearcherFactory]) -> None:
    """Offer ``inherit``."""
    register(
        "inherit",
        SearcherFactory(
            "the first task's genotype is drawn at random, later tasks have the same: nothing is trained",
            options=InheritSearchOptions,
            build="seu_bench_inherit.searcher:InheritSearch",
        ),
    )


@hookimpl
def register_creators(register: Register[CreatorFactory]) -> None:
    """Offer ``inherit``."""
    register(
        "inherit",
        CreatorFactory(
            "new units begin as copies of the most related earlier task's, which a score without training finds",
            options=InheritOptions,
            build="seu_bench_inherit.creator:InheritCreation",
            estimate_passes=estimate_passes,
        ),
    )
