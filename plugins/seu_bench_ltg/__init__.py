"""Learn to Grow (Li et al., ICML 2019) as the SEU paper compares it: each layer of a new task reuses a unit of an
earlier one, adapts it by a small convolution beside it, or gets a new one.

Source: X. Li, Y. Zhou, T. Wu, R. Socher, C. Xiong, "Learn to Grow: A Continual Structure Learning Framework for
Overcoming Catastrophic Forgetting", ICML 2019, arXiv:1904.00310.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from seu_bench import LazyFactory, Register, hookimpl
from seu_bench.config import LEARNING_RATES, SelectingOptions, TaskInferenceOptions, TuningGrid, WidthOptions
from seu_bench.training import StrategyFactory


class LtgOptions(WidthOptions, SelectingOptions, TaskInferenceOptions):
    """Options of Learn to Grow; the schedule's, ``lr_schedule`` and ``restore`` are those of search and training."""

    tuning_grid: ClassVar[TuningGrid] = {"size_penalty": (0.0, 0.001, 0.01, 0.1), "learning_rate": LEARNING_RATES}

    adapter: Literal["pre", "post"] = Field(
        "pre", description="where an adapter is added to its unit: before ReLU (Li et al.), or after pooling"
    )
    size_penalty: NonNegativeFloat = Field(
        0.001, description="weight of the additions' size in the search's loss; the paper tries 0, .001, .01 and .1"
    )
    arch_learning_rate: PositiveFloat = Field(
        0.025, description="Adam's learning rate of the architecture weights (published README: .0003)"
    )
    arch_weight_decay: NonNegativeFloat = Field(0.001, description="weight decay of the architecture weights")
    search_epochs: PositiveInt | None = Field(
        None, description="epochs of the search; not set: as many as training has"
    )
    search_weight_decay: NonNegativeFloat = Field(0.0003, description="weight decay of SGD in the search")


@hookimpl
def register_strategies(register: Register[StrategyFactory]) -> None:
    """Offer ``ltg``."""
    register(
        "ltg",
        LazyFactory(
            "Learn to Grow: each layer reuses, adapts or adds a unit, as a differentiable search finds",
            options=LtgOptions,
            build="seu_bench_ltg.strategy:build_ltg",
            cost="seu_bench_ltg.costing:ltg_cost",
        ),
    )
