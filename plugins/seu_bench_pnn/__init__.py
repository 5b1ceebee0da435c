"""Progressive networks: a new column of the AlexNet variant for every task, with lateral connections from the frozen
columns of the tasks before (Rusu et al. 2016, arXiv:1606.04671)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeFloat

from seu_bench import LazyFactory, Register, hookimpl
from seu_bench.config import SelectingOptions, TaskInferenceOptions, WidthOptions
from seu_bench.training import StrategyFactory


class PnnOptions(WidthOptions, SelectingOptions, TaskInferenceOptions):
    """Options of progressive networks."""

    variant: Literal["proper", "compat"] = Field(
        "proper", description="as Rusu et al. define it, or as the SEU paper's code computes it"
    )
    weight_decay: NonNegativeFloat | None = Field(
        3e-4, description="weight decay of SGD; the SEU paper's code uses this one for every benchmark"
    )


@hookimpl
def register_strategies(register: Register[StrategyFactory]) -> None:
    """Offer ``pnn``."""
    register(
        "pnn",
        LazyFactory(
            "progressive networks: a new column per task, with laterals from the frozen ones (Rusu et al. 2016)",
            options=PnnOptions,
            build="seu_bench_pnn.strategy:build_pnn",
            cost="seu_bench_pnn.costing:pnn_cost",
        ),
    )
