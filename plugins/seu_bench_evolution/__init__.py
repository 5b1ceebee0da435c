"""Regularised evolution (Real et al., "Regularized Evolution for Image Classifier Architecture Search", AAAI 2019), in
which a predictor chooses among mutants."""

from __future__ import annotations

from pydantic import Field, PositiveInt

from seu_bench import Register, hookimpl
from seu_bench.config import NetworkOptions, ScoringOptions
from seu_bench_kit import SearcherFactory, schedule_passes


class EvolutionOptions(ScoringOptions, NetworkOptions):
    """Sizes; the schedule's options are those of the proxy."""

    population: PositiveInt = Field(10, description="newest architectures, among which the next parent is found")
    tournament: PositiveInt = Field(5, description="members drawn, with replacement, of which the best is the parent")
    mutants: PositiveInt = Field(4, description="mutants of a parent, of which the most promising is tried")


@hookimpl
def register_searchers(register: Register[SearcherFactory]) -> None:
    """Offer ``evolution``."""
    register(
        "evolution",
        SearcherFactory(
            "regularised evolution: the newest architectures compete, a predictor chooses among their mutants",
            options=EvolutionOptions,
            build="seu_bench_evolution.searcher:EvolutionSearch",
            estimate_passes=schedule_passes,
        ),
    )
