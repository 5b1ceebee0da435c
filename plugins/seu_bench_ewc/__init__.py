"""Elastic weight consolidation (Kirkpatrick et al., PNAS 2017): weights that mattered are held where they were."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

from pydantic import Field, NonNegativeFloat

from seu_bench import LazyFactory, Register, hookimpl
from seu_bench.config import LEARNING_RATES, SCENARIOS, BackboneOptions, SelectingOptions, TuningGrid
from seu_bench.training import StrategyFactory

#: How the Fisher information is estimated: see :class:`seu_bench_ewc.fisher.FisherStage`.
Estimator: TypeAlias = Literal["batch", "per_sample"]


class EwcOptions(BackboneOptions, SelectingOptions):
    """Options of elastic weight consolidation."""

    tuning_grid: ClassVar[TuningGrid] = {
        "ewc_lambda": (30, 150, 750, 4_000),
        "restore": ("best_valid", "last"),
        "learning_rate": LEARNING_RATES,
    }

    ewc_lambda: NonNegativeFloat = Field(20_000, description="strength of the penalty; 0 is naive fine-tuning")
    fisher: Estimator = Field(
        "batch",
        description="Fisher information from squared gradients of batches times the batch size (published code), "
        "or of single images",
    )


@hookimpl
def register_strategies(register: Register[StrategyFactory]) -> None:
    """Offer ``ewc``."""
    register(
        "ewc",
        LazyFactory(
            "elastic weight consolidation (Kirkpatrick et al. 2017)",
            options=EwcOptions,
            scenarios=SCENARIOS,
            build="seu_bench_ewc.strategy:build_ewc",
            cost="seu_bench_ewc.strategy:ewc_cost",
        ),
    )
