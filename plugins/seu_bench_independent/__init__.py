"""Strategies whose tasks share nothing, so that nothing can be forgotten: a linear classifier for each task, and a
network of its own for each. Lifelong learning has to be better than these, at their size."""

from __future__ import annotations

from typing import ClassVar

from seu_bench import LazyFactory, Register, hookimpl
from seu_bench.config import LEARNING_RATES, BackboneOptions, SelectingOptions, TaskInferenceOptions, TuningGrid
from seu_bench.results import REFERENCE_ROWS
from seu_bench.training import StrategyFactory


class LinearOptions(SelectingOptions, TaskInferenceOptions):
    """Options of a linear classifier per task."""

    # Pixels that are not normalised by any layer ask for smaller steps than networks do.
    tuning_grid: ClassVar[TuningGrid] = {"learning_rate": (0.0008, 0.0025, *LEARNING_RATES)}


class IndependentOptions(BackboneOptions, SelectingOptions, TaskInferenceOptions):
    """Options of a network per task."""


@hookimpl
def register_strategies(register: Register[StrategyFactory]) -> None:
    """Offer ``linear`` and ``independent``."""
    register(
        "linear",
        LazyFactory(
            "one linear classifier per task on the pixels (naive on the backbone linear)",
            options=LinearOptions,
            build="seu_bench_independent.linear:build_linear",
            cost="seu_bench_independent.linear:linear_cost",
            reference=REFERENCE_ROWS["linear"],
        ),
    )
    register(
        "independent",
        LazyFactory(
            "a network of its own for each task: as many networks as tasks",
            options=IndependentOptions,
            build="seu_bench_independent.networks:build_independent",
            cost="seu_bench_independent.networks:independent_cost",
            reference=REFERENCE_ROWS["independent"],
        ),
    )
