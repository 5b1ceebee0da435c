"""Task-model creators beside the paper's: all new, reuse first, growth that has to pay, MNTDP-D's rule, inheritance."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from seu_bench import Register, hookimpl
from seu_bench.config import CreationSchedule, Options, ScoringOptions
from seu_bench_kit import CreatorFactory, SearcherFactory, recalibration_passes, schedule_passes


class AllNewOptions(Options):
    """None: there is nothing to choose."""


class ReuseFirstOptions(ScoringOptions):
    """The budget is the schedule's: part of its epochs goes to old units, the rest to new ones."""

    old_share: float = Field(
        0.34, gt=0, le=1, description="share of the epochs in which paths of old units only are scored"
    )
    min_gain: float = Field(
        0.0, ge=0, le=1, description="accuracy on the second half by which a new unit must beat the old one"
    )


class FrugalOptions(ScoringOptions):
    """Options of the probe of candidates for reuse."""

    probe_images: NonNegativeInt = Field(
        256, description="images, at most, on which each earlier task's path is probed; 0: the newest path is taken"
    )


class KnnPrefixOptions(ScoringOptions):
    """Options of the prior; the schedule's epochs are shared by the candidates."""

    k: PositiveInt = Field(15, description="neighbours that vote (published code; 5 on S_long)")
    prior_images: NonNegativeInt = Field(
        1000,
        description="images, at most, half to fit and half to score, on which each earlier task's path is judged; "
        "0: the newest path is taken",
    )


class InheritSearchOptions(Options):
    """None: there is nothing to choose."""


class InheritOptions(Options):
    """Options of the choice of what is inherited."""

    relation: Literal["ridge", "knn", "h_score", "log_evidence", "latest"] = Field(
        "ridge", description="score of an earlier path's features by which the related task is found, or `latest`"
    )
    images: NonNegativeInt = Field(
        512, description="training images, at most, on which each earlier path is scored; 0: the latest is related"
    )
    shared: NonNegativeInt = Field(
        0, description="layers, from the first, that are reused as they are in place of copied"
    )
    copies: bool = Field(True, description="whether new units begin as copies, or as they were initialised")
    probe: bool = Field(
        False, description="whether the head begins as a linear probe of the features that training begins with"
    )


def inherit_passes(schedule: CreationSchedule, train_images: int) -> int:
    """A tenth of the images that a creator would pass forward that trains for the schedule's epochs."""
    return schedule.epochs * train_images // 10


def estimate_inherit(options: InheritOptions, schedule: CreationSchedule, train_images: int) -> tuple[int, int]:
    """Announce the images that are scored, for all earlier paths together, and those of the probe; nothing trains."""
    scored = inherit_passes(schedule, train_images) if options.relation != "latest" and options.images else 0
    statistics = recalibration_passes(options.images, train_images, schedule.batch_size)
    return 0, scored + (statistics + train_images if options.probe else 0)


@hookimpl
def register_searchers(register: Register[SearcherFactory]) -> None:
    """Offer ``inherit``."""
    what = "the first task's genotype is drawn at random, later tasks have the same: nothing is trained"
    build = "seu_bench_creators.inherit:InheritSearch"
    register("inherit", SearcherFactory(what, options=InheritSearchOptions, build=build))


@hookimpl
def register_creators(register: Register[CreatorFactory]) -> None:
    """Offer them all."""
    register(
        "all_new",
        CreatorFactory(
            "every task takes the new unit in every layer: nothing is reused, nothing is trained before training",
            options=AllNewOptions,
            build="seu_bench_creators.paths:AllNewCreation",
        ),
    )
    register(
        "reuse_first",
        CreatorFactory(
            "scores old units first, then takes a new one in a layer only where it gains on held-out images",
            options=ReuseFirstOptions,
            build="seu_bench_creators.reuse_first:ReuseFirstCreation",
            estimate_passes=schedule_passes,
        ),
    )
    register(
        "frugal",
        CreatorFactory(
            "reuses the beginning of an earlier path and grows the rest, as far as that pays in mixed score",
            options=FrugalOptions,
            build="seu_bench_creators.frugal:FrugalCreation",
            estimate_passes=schedule_passes,
        ),
    )
    register(
        "knn_prefix",
        CreatorFactory(
            "MNTDP-D's rule: the related task by nearest neighbours, then every prefix of its path is trained",
            options=KnnPrefixOptions,
            build="seu_bench_creators.knn_prefix:KnnPrefixCreation",
            estimate_passes=schedule_passes,
        ),
    )
    register(
        "inherit",
        CreatorFactory(
            "new units begin as copies of the most related earlier task's, which a score without training finds",
            options=InheritOptions,
            build="seu_bench_creators.inherit:InheritCreation",
            estimate_passes=estimate_inherit,
        ),
    )
