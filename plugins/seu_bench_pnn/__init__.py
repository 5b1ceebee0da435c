"""Progressive networks: a new column of the AlexNet variant for every task, with lateral connections from the frozen
columns of the tasks before (Rusu et al. 2016, arXiv:1606.04671)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import Field, NonNegativeFloat

from seu_bench import hookimpl
from seu_bench.config.common_options import SelectingOptions, WidthOptions
from seu_bench.config.options import Options
from seu_bench.plugin.registration import Register
from seu_bench.training.interfaces import Cost, StrategyContext, StrategyFactory

if TYPE_CHECKING:
    from seu_bench_pnn.strategy import Pnn


class PnnOptions(WidthOptions, SelectingOptions):
    """Options of progressive networks."""

    variant: Literal["proper", "compat"] = Field(
        "proper", description="as Rusu et al. define it, or as the SEU paper's code computes it"
    )
    weight_decay: NonNegativeFloat | None = Field(
        3e-4, description="weight decay of SGD; the SEU paper's code uses this one for every benchmark"
    )


class PnnFactory:
    """A column per task; what was learned is never changed."""

    summary = "progressive networks: a new column per task, with laterals from the frozen ones (Rusu et al. 2016)"
    options: type[Options] = PnnOptions
    components: Mapping[str, str] = {}
    presets: Mapping[str, Mapping[str, object]] = {}

    def build(self, context: StrategyContext) -> Pnn:
        """The Avalanche strategy."""
        from seu_bench_pnn.strategy import build_pnn

        return build_pnn(context)

    def cost(self, context: StrategyContext) -> Cost:
        """Exact: how it grows is known before."""
        from seu_bench_pnn.costing import pnn_cost

        return pnn_cost(context)


@hookimpl
def register_strategies(register: Register[StrategyFactory]) -> None:
    """Offer ``pnn``."""
    register("pnn", PnnFactory())
