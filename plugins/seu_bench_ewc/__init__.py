"""Elastic weight consolidation (Kirkpatrick et al., PNAS 2017): weights that mattered are held where they were."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

from pydantic import Field, NonNegativeFloat

from seu_bench import hookimpl
from seu_bench.config.common_options import BackboneOptions, SelectingOptions
from seu_bench.config.options import Options
from seu_bench.plugin.registration import Register
from seu_bench.training.interfaces import Cost, StrategyContext, StrategyFactory

if TYPE_CHECKING:
    from seu_bench.training.strategy import StagedStrategy

#: How the Fisher information is estimated: see :class:`seu_bench_ewc.fisher.FisherStage`.
Estimator: TypeAlias = Literal["batch", "per_sample"]


class EwcOptions(BackboneOptions, SelectingOptions):
    """Options of elastic weight consolidation."""

    ewc_lambda: NonNegativeFloat = Field(20_000, description="strength of the penalty; 0 is naive fine-tuning")
    fisher: Estimator = Field(
        "batch",
        description="Fisher information from squared gradients of batches times the batch size (published code), "
        "or of single images",
    )


class EwcFactory:
    """One network on each task in turn, with a penalty on moving the weights that earlier tasks need."""

    summary = "elastic weight consolidation (Kirkpatrick et al. 2017)"
    options: type[Options] = EwcOptions
    components: Mapping[str, str] = {}
    presets: Mapping[str, Mapping[str, object]] = {}

    def build(self, context: StrategyContext) -> StagedStrategy:
        """The Avalanche strategy."""
        from seu_bench_ewc.strategy import build_ewc

        return build_ewc(context)

    def cost(self, context: StrategyContext) -> Cost:
        """Exact: the network does not grow, and the Fisher pass sees each training image once."""
        from seu_bench_ewc.strategy import ewc_cost

        return ewc_cost(context)


@hookimpl
def register_strategies(register: Register[StrategyFactory]) -> None:
    """Offer ``ewc``."""
    register("ewc", EwcFactory())
