"""PackNet: one network holds many tasks. What a task does not need is pruned, and free for the tasks after it (Mallya &
Lazebnik, CVPR 2018).

Source: A. Mallya, S. Lazebnik, "PackNet: Adding Multiple Tasks to a Single Network by Iterative Pruning", CVPR 2018,
arXiv:1711.05769.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, PositiveFloat, PositiveInt

from seu_bench import LazyFactory, Register, hookimpl
from seu_bench.config import LEARNING_RATES, BackboneOptions, SelectingOptions, TaskInferenceOptions, TuningGrid
from seu_bench.training import StrategyFactory


class PackNetOptions(BackboneOptions, SelectingOptions, TaskInferenceOptions):
    """Options of PackNet; the schedule's are those of training, and of retraining but for its epochs and rate."""

    tuning_grid: ClassVar[TuningGrid] = {"prune_fraction": (0.5, 0.75, 0.9), "learning_rate": LEARNING_RATES}

    prune_fraction: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.75,
        description="share of a layer's free weights that each task leaves to later ones; the paper tries .5 and .75",
    )
    retrain_epochs: PositiveInt | None = Field(
        None,
        description="epochs of retraining after pruning; not set: half of those of training (published code: 10 of 20)",
    )
    retrain_rate: PositiveFloat = Field(
        0.1, description="first learning rate of retraining, as a multiple of that of training (published code: .1)"
    )


@hookimpl
def register_strategies(register: Register[StrategyFactory]) -> None:
    """Offer ``packnet``."""
    register(
        "packnet",
        LazyFactory(
            "PackNet: a task keeps its largest weights and leaves the others to later tasks (Mallya & Lazebnik 2018)",
            options=PackNetOptions,
            build="seu_bench_packnet.strategy:build_packnet",
            cost="seu_bench_packnet.strategy:packnet_cost",
        ),
    )
