"""PathNet as an Avalanche strategy: for each task a search, which trains, then freezing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from seu_bench.models import chain_of
from seu_bench.training import Phase, StagedStrategy, StrategyContext, TaskData, build_backbone, checked_options
from seu_bench.utils import RandomState, derive_seed
from seu_bench_pathnet import PathNetOptions
from seu_bench_pathnet.model import ModularNetwork
from seu_bench_pathnet.search import PathSearch


class PathNet(StagedStrategy):
    """Fernando et al. 2017: earlier tasks' paths never change, so nothing is forgotten.

    Args:
        model: without paths.
        active: modules of a layer that a path has at most.
        generations: tournaments of a task.
        options: those of :class:`~seu_bench.training.strategy.StagedStrategy`.
    """

    model: ModularNetwork

    def __init__(self, *, model: ModularNetwork, active: int = 3, generations: int = 20, **options: Any) -> None:
        super().__init__(model=model, **options)
        self.active = active
        self.generations = generations

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """The search, whose path is kept: no training follows it, for it trains the weights that stay."""
        return [Phase(lambda: self._search(task), lambda _: self.model.keep(task.index))]

    def trained_module(self, task: TaskData) -> nn.Module:
        """All that the task's paths may train."""
        return self.model.free_module(task.index)

    def describe(self) -> dict[str, Any]:
        """The modules that each learned task uses in each layer."""
        paths = [self.model.paths[task] for task in sorted(self.model.paths)]
        return {"choices": tuple(tuple(" ".join(map(str, layer)) for layer in path) for path in paths)}

    def _search(self, task: TaskData) -> PathSearch:
        if self.model.paths:
            with RandomState(self.seed_for("modules", task.index), self.device).active():
                self.model.renew()
        return PathSearch(self, task, self.active, self.generations)


def modular_network(context: StrategyContext) -> ModularNetwork:
    """The model of a run, without paths.

    Raises:
        RequestError: the backbone is no chain of layers, or does not fit the images.
    """
    options = checked_options(context, PathNetOptions)
    with RandomState(derive_seed(context.seed, "model")).active():
        chain = chain_of(build_backbone(context)[0], "pathnet")
        return ModularNetwork(chain, context.plan.classes_per_task, options.modules)


def build_pathnet(context: StrategyContext) -> PathNet:
    """The strategy of a run."""
    options = checked_options(context, PathNetOptions)
    return PathNet.of(context, model=modular_network(context), active=options.active, generations=options.generations)
