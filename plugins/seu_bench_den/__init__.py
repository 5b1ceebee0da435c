"""Dynamically expandable networks (DEN): the weights that a task needs are trained on, units are added where they do
not suffice, and those that changed too much are split in two.

Source: J. Yoon, E. Yang, J. Lee, S. J. Hwang, "Lifelong Learning with Dynamically Expandable Networks", ICLR 2018,
arXiv:1708.01547.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from seu_bench import LazyFactory, Register, hookimpl
from seu_bench.config import BackboneOptions, SelectingOptions, TaskInferenceOptions, TuningGrid
from seu_bench.plugin.registration import deferred
from seu_bench.training import BackboneFactory, StrategyFactory

if TYPE_CHECKING:
    from torch import nn


class DenOptions(BackboneOptions, SelectingOptions, TaskInferenceOptions):
    """Options of dynamically expandable networks; a schedule is that of each of a task's stages."""

    tuning_grid: ClassVar[TuningGrid] = {"drift": (0.1, 0.5, 2.5), "learning_rate": (0.0003, 0.001, 0.003)}

    backbone: str = Field("mlp", description="network of linear layers to grow from: mlp, or den_mlp of the paper")
    optimizer: Literal["adam", "sgd"] = Field("adam", description="what trains; sgd has the schedule's momentum")
    learning_rate: PositiveFloat | None = Field(0.001, description="learning rate of a stage's first epoch")
    weight_decay: NonNegativeFloat | None = Field(0.0001, description="strength of the l2 penalty on what trains")
    l1: NonNegativeFloat = Field(
        0.00001,
        description="what a step takes off each weight at the first learning rate, in the first task, in the selection "
        "and in the expansion",
    )
    selection_epochs: PositiveInt | None = Field(
        None, description="epochs that the new head alone is trained for; not set: as many as training has"
    )
    loss_threshold: NonNegativeFloat = Field(
        0.01, description="mean training loss above which units are added after the retraining"
    )
    expand_by: PositiveInt = Field(10, description="units that are added to each layer, before useless ones go")
    group_sparsity: NonNegativeFloat = Field(
        0.001, description="what a step takes off the norm of each added unit's incoming weights"
    )
    drift: NonNegativeFloat = Field(
        0.5, description="strength of the pull to the old weights, half of the squared distance to them"
    )
    split_threshold: NonNegativeFloat = Field(
        0.05, description="distance of a unit's incoming weights from the old ones above which it is split"
    )
    split_limit: PositiveInt = Field(10, description="units of a layer that a task splits, at most")
    split: Literal["most_drifted", "least_drifted"] = Field(
        "most_drifted",
        description="which of the units above the threshold are split; the published code takes the least",
    )


@hookimpl
def register_strategies(register: Register[StrategyFactory]) -> None:
    """Offer ``den``."""
    register(
        "den",
        LazyFactory(
            "dynamically expandable networks: retrains what a task needs, adds units, splits those that drifted",
            options=DenOptions,
            build="seu_bench_den.strategy:build_den",
            cost="seu_bench_den.costing:den_cost",
        ),
    )
