"""Naive fine-tuning: the smallest strategy plugin. Copy this package to begin one of your own.

It has two halves: this module, which is imported whenever the command line starts and therefore imports no torch, and
:mod:`seu_bench_naive.strategy`, imported when a run begins.
"""

from __future__ import annotations

from typing import ClassVar

from seu_bench import LazyFactory, Register, hookimpl
from seu_bench.config import LEARNING_RATES, SCENARIOS, BackboneOptions, SelectingOptions, TuningGrid
from seu_bench.training import StrategyFactory


class NaiveOptions(BackboneOptions, SelectingOptions):
    """Options of naive fine-tuning."""

    tuning_grid: ClassVar[TuningGrid] = {"restore": ("best_valid", "last"), "learning_rate": LEARNING_RATES}


@hookimpl
def register_strategies(register: Register[StrategyFactory]) -> None:
    """Offer ``naive``."""
    register(
        "naive",
        LazyFactory(
            "SGD on each task in turn, nothing against forgetting (the paper's SGD baseline)",
            options=NaiveOptions,
            scenarios=SCENARIOS,
            build="seu_bench_naive.strategy:build_naive",
            cost="seu_bench_naive.strategy:naive_cost",
        ),
    )
