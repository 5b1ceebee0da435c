"""Task-model creators beside the paper's: all new, reuse first, and growth that has to pay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field, NonNegativeInt

from seu_bench import hookimpl
from seu_bench.config.options import Options
from seu_bench.config.protocol import CreationSchedule, ScheduleOptions
from seu_bench.plugin.registration import Register
from seu_bench.training.costing import half_passes
from seu_bench.training.interfaces import CreationTask, CreatorFactory

if TYPE_CHECKING:
    from seu_bench.training.stage import Stage


class AllNewOptions(Options):
    """None: there is nothing to choose."""


class ReuseFirstOptions(ScheduleOptions):
    """The budget is the schedule's: part of its epochs goes to old units, the rest to new ones."""

    old_share: float = Field(
        0.34, gt=0, le=1, description="share of the epochs in which paths of old units only are scored"
    )
    min_gain: float = Field(
        0.0, ge=0, le=1, description="accuracy on the second half by which a new unit must beat the old one"
    )


class FrugalOptions(ScheduleOptions):
    """How the candidates for reuse are looked at."""

    probe_images: NonNegativeInt = Field(
        256, description="images, at most, on which each earlier task's path is probed; 0: the newest path is taken"
    )


class AllNewFactory:
    """The upper end of growth."""

    summary = "every task takes the new unit in every layer: nothing is reused, nothing is trained before training"
    options: type[Options] = AllNewOptions

    def build(self, options: AllNewOptions, task: CreationTask) -> Stage[tuple[int, ...]]:
        """The creation stage of a task."""
        from seu_bench_creators.all_new import AllNewCreation

        return AllNewCreation(task)

    def estimate_passes(self, options: AllNewOptions, schedule: CreationSchedule, train_images: int) -> tuple[int, int]:
        """No image is looked at."""
        return 0, 0


class ReuseFirstFactory:
    """Old units have the first word."""

    summary = "scores old units first, then takes a new one in a layer only where it gains on held-out images"
    options: type[Options] = ReuseFirstOptions

    def build(self, options: ReuseFirstOptions, task: CreationTask) -> Stage[tuple[int, ...]]:
        """The creation stage of a task."""
        from seu_bench_creators.reuse_first import ReuseFirstCreation

        return ReuseFirstCreation(options, task)

    def estimate_passes(
        self, options: ReuseFirstOptions, schedule: CreationSchedule, train_images: int
    ) -> tuple[int, int]:
        """Half of the images train and half are scored in every epoch."""
        return half_passes(options.applied_to(schedule).epochs, train_images)


class FrugalFactory:
    """Growth that has to pay."""

    summary = "reuses the beginning of an earlier path and grows the rest, as far as that pays in mixed score"
    options: type[Options] = FrugalOptions

    def build(self, options: FrugalOptions, task: CreationTask) -> Stage[tuple[int, ...]]:
        """The creation stage of a task."""
        from seu_bench_creators.frugal import FrugalCreation

        return FrugalCreation(options, task)

    def estimate_passes(self, options: FrugalOptions, schedule: CreationSchedule, train_images: int) -> tuple[int, int]:
        """At most what the MDL creator takes with as many epochs."""
        return half_passes(options.applied_to(schedule).epochs, train_images)


@hookimpl
def register_creators(register: Register[CreatorFactory]) -> None:
    """Offer all three."""
    register("all_new", AllNewFactory())
    register("reuse_first", ReuseFirstFactory())
    register("frugal", FrugalFactory())
