"""The nearest class mean in pixel space: what every class-incremental learner has to beat."""

from __future__ import annotations

from seu_bench import LazyFactory, Register, hookimpl
from seu_bench.config import TrainingOptions
from seu_bench.results import REFERENCE_ROWS
from seu_bench.training import StrategyFactory


class NearestMeanOptions(TrainingOptions):
    """Options of every trained strategy, none of which has an effect here: nothing is trained."""


@hookimpl
def register_strategies(register: Register[StrategyFactory]) -> None:
    """Offer ``nearest_mean``."""
    register(
        "nearest_mean",
        LazyFactory(
            "the nearest mean of a class's training images answers: no network, nothing forgotten",
            options=NearestMeanOptions,
            build="seu_bench_nearest_mean.strategy:build_nearest_mean",
            cost="seu_bench_nearest_mean.strategy:nearest_mean_cost",
            scenarios=("class", "domain"),
            reference=REFERENCE_ROWS["nearest_mean"],
        ),
    )
