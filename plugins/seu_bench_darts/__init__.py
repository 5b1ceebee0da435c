"""DARTS (Liu, Simonyan & Yang, "DARTS: Differentiable Architecture Search", ICLR 2019) as a searcher."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat

from seu_bench import Register, hookimpl
from seu_bench.config import NetworkOptions, ScoringOptions, SearchSchedule
from seu_bench_kit import SearcherFactory, schedule_passes


class DartsOptions(ScoringOptions, NetworkOptions):
    """The weights' schedule is the protocol's; the architecture has an Adam of its own (DARTS, section 3.1)."""

    removed: ClassVar[Mapping[str, Any]] = {"order": 1}

    arch_learning_rate: PositiveFloat = Field(3e-4, description="learning rate of the architecture's Adam")
    arch_weight_decay: NonNegativeFloat = Field(1e-3, description="weight decay of the architecture's Adam")
    restore: Literal["best_valid", "last"] = Field(
        "best_valid", description="architecture taken: that of the lowest loss on the second half, or the last"
    )


def estimate_passes(options: DartsOptions, schedule: SearchSchedule, train_images: int) -> tuple[int, int]:
    """Per image of the first half one pass for the weights and, for the architecture, one of as many images of the
    second half; per epoch statistics are recalibrated and the second half is scored."""
    train, score = schedule_passes(options, schedule, train_images)
    return 2 * train, score


@hookimpl
def register_searchers(register: Register[SearcherFactory]) -> None:
    """Offer ``darts``."""
    register(
        "darts",
        SearcherFactory(
            "differentiable search: all operations at once, weighted, the weights learned by gradient",
            options=DartsOptions,
            build="seu_bench_darts.searcher:DartsSearch",
            estimate_passes=estimate_passes,
        ),
    )
