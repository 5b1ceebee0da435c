"""iCaRL (Rebuffi, Kolesnikov, Sperl & Lampert, CVPR 2017): distillation, a herded memory, the nearest mean answers."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, PositiveInt, StrictBool

from seu_bench import LazyFactory, Register, hookimpl
from seu_bench.config import LEARNING_RATES, BackboneOptions, TuningGrid
from seu_bench.training import StrategyFactory


class IcarlOptions(BackboneOptions):
    """Options of iCaRL."""

    tuning_grid: ClassVar[TuningGrid] = {"learning_rate": LEARNING_RATES}

    memory: PositiveInt = Field(200, description="images kept of all classes together, at most")
    mirror: StrictBool = Field(
        True, description="means of exemplars are those of their features and of their mirror images' features"
    )
    rate_steps: StrictBool = Field(
        False,
        description="divide the learning rate by 5 after 70 and after 90 % of a task's epochs (published), whatever "
        "lr_schedule says",
    )

    def identity(self) -> dict[str, Any]:
        """Leave out the memory where it is 2000, the default until it was the same for all methods."""
        own = {"memory": self.memory} if self.memory != 2000 else {}
        return {key: value for key, value in super().identity().items() if key != "memory"} | own


@hookimpl
def register_strategies(register: Register[StrategyFactory]) -> None:
    """Offer ``icarl``."""
    register(
        "icarl",
        LazyFactory(
            "distillation, a herded memory, and the nearest mean of exemplars answers (iCaRL, Rebuffi et al. 2017)",
            options=IcarlOptions,
            build="seu_bench_icarl.strategy:build_icarl",
            cost="seu_bench_icarl.costing:icarl_cost",
            scenarios=("class",),
            check_options={"memory": 12},
        ),
    )
