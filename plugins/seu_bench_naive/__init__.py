"""Naive fine-tuning: the smallest strategy plugin. Copy this package to begin one of your own.

It has two halves: this module, which is imported whenever the command line starts and therefore imports no torch, and
:mod:`seu_bench_naive.strategy`, imported when a run begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from seu_bench import hookimpl
from seu_bench.config.common_options import BackboneOptions, SelectingOptions
from seu_bench.config.options import Options
from seu_bench.plugin.registration import Register
from seu_bench.training.interfaces import Cost, StrategyContext, StrategyFactory

if TYPE_CHECKING:
    from seu_bench.training.strategy import StagedStrategy


class NaiveOptions(BackboneOptions, SelectingOptions):
    """Options of naive fine-tuning."""


class NaiveFactory:
    """Fine-tune one network on each task in turn; nothing is done against forgetting."""

    summary = "SGD on each task in turn, nothing against forgetting (the paper's SGD baseline)"
    options: type[Options] = NaiveOptions
    components: Mapping[str, str] = {}
    presets: Mapping[str, Mapping[str, object]] = {}

    def build(self, context: StrategyContext) -> StagedStrategy:
        """The Avalanche strategy."""
        from seu_bench_naive.strategy import build_naive

        return build_naive(context)

    def cost(self, context: StrategyContext) -> Cost:
        """Exact: the network does not grow."""
        from seu_bench_naive.strategy import naive_cost

        return naive_cost(context)


@hookimpl
def register_strategies(register: Register[StrategyFactory]) -> None:
    """Offer ``naive``."""
    register("naive", NaiveFactory())
