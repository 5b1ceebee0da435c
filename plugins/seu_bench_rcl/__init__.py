"""Reinforced continual learning (Xu & Zhu, NeurIPS 2018): a controller, taught by reinforcement, decides how many units
each layer gets for a new task.

Source: J. Xu, Z. Zhu, "Reinforced Continual Learning", NeurIPS 2018, arXiv:1805.12369.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from seu_bench import LazyFactory, Register, hookimpl
from seu_bench.config import LEARNING_RATES, BackboneOptions, SelectingOptions, TaskInferenceOptions, TuningGrid
from seu_bench.training import StrategyFactory


class RclOptions(BackboneOptions, SelectingOptions, TaskInferenceOptions):
    """Options of reinforced continual learning; the schedule's and ``lr_schedule`` are those of trials and training."""

    tuning_grid: ClassVar[TuningGrid] = {"unit_penalty": (0.0, 0.0001, 0.001), "learning_rate": LEARNING_RATES}

    trials: PositiveInt = Field(50, description="networks that are tried for each task but the first")
    trial_epochs: PositiveInt | None = Field(None, description="epochs of each trial; not set: as many as training has")
    max_units: NonNegativeInt = Field(29, description="units that a task adds to a layer at most")
    unit_penalty: NonNegativeFloat = Field(0.0001, description="reward lost per unit that is added")
    controller_learning_rate: PositiveFloat = Field(0.001, description="Adam's learning rate of the controller")
    baseline_learning_rate: PositiveFloat = Field(0.005, description="Adam's learning rate of the reward's baseline")
    finish: Literal["keep", "train"] = Field(
        "keep", description="the best trial's weights are kept (published code), or trained on"
    )


@hookimpl
def register_strategies(register: Register[StrategyFactory]) -> None:
    """Offer ``rcl``."""
    register(
        "rcl",
        LazyFactory(
            "reinforced continual learning: a controller finds how many units each layer gets (Xu & Zhu 2018)",
            options=RclOptions,
            build="seu_bench_rcl.strategy:build_rcl",
            cost="seu_bench_rcl.costing:rcl_cost",
        ),
    )
