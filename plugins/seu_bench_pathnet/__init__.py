"""PathNet (Fernando et al. 2017) in its supervised form: each task evolves a path through layers of modules, which is
then frozen.

Sources: C. Fernando, D. Banarse, C. Blundell, Y. Zwols, D. Ha, A. A. Rusu, A. Pritzel, D. Wierstra, "PathNet: Evolution
Channels Gradient Descent in Super Neural Networks", 2017, arXiv:1701.08734; and the baseline of that name in the code
that J. Serra, D. Suris, M. Miron, A. Karatzoglou published with "Overcoming catastrophic forgetting with hard attention
to the task", ICML 2018, arXiv:1801.01423, called the published code here.
"""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import Field, PositiveInt, model_validator

from seu_bench import LazyFactory, Register, hookimpl
from seu_bench.config import LEARNING_RATES, BackboneOptions, SelectingOptions, TaskInferenceOptions, TuningGrid
from seu_bench.training import StrategyFactory


class PathNetOptions(BackboneOptions, SelectingOptions, TaskInferenceOptions):
    """Options of PathNet; ``epochs`` is how long each of the two paths is trained for a task."""

    tuning_grid: ClassVar[TuningGrid] = {"generations": (5, 20), "learning_rate": LEARNING_RATES}

    modules: PositiveInt = Field(16, description="modules in each layer (published code)")
    active: PositiveInt = Field(3, description="modules of a layer that a path has at most (published code)")
    generations: PositiveInt = Field(
        20, description="tournaments of a task (published code); with fewer epochs one for each epoch"
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.active > self.modules:
            raise ValueError(f"active={self.active} is more than modules={self.modules}")
        return self


@hookimpl
def register_strategies(register: Register[StrategyFactory]) -> None:
    """Offer ``pathnet``."""
    register(
        "pathnet",
        LazyFactory(
            "PathNet: each task evolves a path through layers of modules, which is frozen (Fernando et al. 2017)",
            options=PathNetOptions,
            build="seu_bench_pathnet.strategy:build_pathnet",
            cost="seu_bench_pathnet.costing:pathnet_cost",
        ),
    )
