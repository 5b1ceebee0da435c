"""Strategy ``wrapped``: a plugin of Avalanche as it is, in a strategy of seu-bench."""

from typing import Any

from anchored import Anchored

from seu_bench import LazyFactory, hookimpl
from seu_bench.training import StrategyContext


def build(context: StrategyContext) -> Any:
    from avalanche.training.plugins import EWCPlugin

    from seu_bench.training import StagedStrategy, backbone_model

    return StagedStrategy.of(context, model=backbone_model(context), plugins=[EWCPlugin(ewc_lambda=10.0)])


@hookimpl
def register_strategies(register: Any) -> None:
    cost = "seu_bench.training:fixed_size_cost"
    register("wrapped", LazyFactory("Avalanche's EWC plugin", options=Anchored.Options, build=build, cost=cost))
