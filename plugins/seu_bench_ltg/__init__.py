"""Learn to Grow (Li et al., ICML 2019) as the SEU paper compares it: each layer of a new task reuses a unit of an
earlier one, adapts it by a small convolution beside it, or gets a new one.

Source: X. Li, Y. Zhou, T. Wu, R. Socher, C. Xiong, "Learn to Grow: A Continual Structure Learning Framework for
Overcoming Catastrophic Forgetting", ICML 2019, arXiv:1904.00310.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from seu_bench import hookimpl
from seu_bench.config.common_options import SelectingOptions, WidthOptions
from seu_bench.config.options import Options
from seu_bench.plugin.registration import Register
from seu_bench.training.interfaces import Cost, StrategyContext, StrategyFactory

if TYPE_CHECKING:
    from seu_bench.training.strategy import StagedStrategy


class LtgOptions(WidthOptions, SelectingOptions):
    """Options of Learn to Grow; the schedule's, ``lr_schedule`` and ``restore`` are those of search and training."""

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
    search_epochs: PositiveInt | None = Field(None, description="epochs of the search; as many as training has")
    search_weight_decay: NonNegativeFloat = Field(0.0003, description="weight decay of SGD in the search")


class LtgFactory:
    """Search per layer what to reuse, to adapt or to make new, then train what is new."""

    summary = "Learn to Grow: each layer reuses, adapts or adds a unit, as a differentiable search finds"
    options: type[Options] = LtgOptions
    components: Mapping[str, str] = {}
    presets: Mapping[str, Mapping[str, object]] = {}

    def build(self, context: StrategyContext) -> StagedStrategy:
        """The Avalanche strategy."""
        from seu_bench_ltg.strategy import build_ltg

        return build_ltg(context)

    def cost(self, context: StrategyContext) -> Cost:
        """A range: what is reused is not known before."""
        from seu_bench_ltg.costing import ltg_cost

        return ltg_cost(context)


@hookimpl
def register_strategies(register: Register[StrategyFactory]) -> None:
    """Offer ``ltg``."""
    register("ltg", LtgFactory())
