"""The light half: what seu-bench imports to list what is installed. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field, NonNegativeFloat, PositiveInt

from seu_bench import LazyFactory, Register, hookimpl
from seu_bench.config import BackboneOptions, SelectingOptions
from seu_bench.training import StrategyFactory


class DerOptions(BackboneOptions, SelectingOptions):
    """The backbone, the schedule, the selection of weights, and DER++'s own."""

    older_names: ClassVar[Mapping[str, str]] = {"mem_size": "memory"}

    memory: PositiveInt = Field(200, description="images kept")
    batch_size_mem: PositiveInt = Field(32, description="images replayed with each batch, twice")
    alpha: NonNegativeFloat = Field(0.1, description="weight of the squared distance to remembered logits")
    beta: NonNegativeFloat = Field(0.5, description="weight of the cross-entropy of remembered labels")


@hookimpl
def register_strategies(register: Register[StrategyFactory]) -> None:
    """Offer ``derpp``."""
    register(
        "derpp",
        LazyFactory(
            "dark experience replay: labels and logits of a reservoir (DER++, Buzzega et al. 2020)",
            options=DerOptions,
            build="derpp.learning:build",
            cost="derpp.learning:cost",
        ),
    )
