"""Streaming linear discriminant analysis in pixel space: the best that means and one covariance can do."""

from __future__ import annotations

from pydantic import Field

from seu_bench import LazyFactory, Register, hookimpl
from seu_bench.config import SCENARIOS, TrainingOptions
from seu_bench.training import StrategyFactory


class SldaOptions(TrainingOptions):
    """Shrinkage; options of training have no effect, as nothing is trained."""

    shrinkage: float = Field(
        1e-2, gt=0, le=1, description="Share of the identity, as large as the mean variance, in the covariance."
    )


@hookimpl
def register_strategies(register: Register[StrategyFactory]) -> None:
    """Offer ``slda``."""
    register(
        "slda",
        LazyFactory(
            "streaming linear discriminant analysis of pixels (Hayes & Kanan 2020): one pass, nothing forgotten",
            options=SldaOptions,
            build="seu_bench_slda.strategy:build_slda",
            cost="seu_bench_slda.strategy:slda_cost",
            scenarios=SCENARIOS,
        ),
    )
