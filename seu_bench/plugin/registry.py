"""Names -> what plugins registered under them, with the package each came from."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pluggy

from seu_bench.config.benchmark import BenchmarkSource
from seu_bench.plugin.entries import Entry, Kind, collect
from seu_bench.plugin.executors import ExecutorFactory
from seu_bench.plugin.loggers import LoggerFactory
from seu_bench.plugin.manager import installed_points, load_plugins
from seu_bench.plugin.registration import CommandFactory
from seu_bench.results.metric import Metric, as_metric
from seu_bench.results.record_metrics import METRICS
from seu_bench.training.components import CreatorFactory, SearcherFactory
from seu_bench.training.interfaces import BackboneFactory, StrategyFactory

if TYPE_CHECKING:
    from seu_bench.data.dataset import DatasetSource  # imports NumPy

#: The distribution that core and the plugins beside it come in.
OURS: Final = "seu-bench"


class Registry:
    """Everything that installed plugins offer.

    Args:
        manager: the plugins; those installed by default.

    Raises:
        PluginError: a plugin cannot be loaded, or two register the same name.
    """

    def __init__(self, manager: pluggy.PluginManager | None = None) -> None:
        points = installed_points()
        self.manager = load_plugins(points) if manager is None else manager
        self._packages = {point.name: package for point, package in points}
        kind = partial(collect, self.manager, self._packages)
        self.strategies: Kind[StrategyFactory] = kind("strategy", "strategies")
        self.backbones: Kind[BackboneFactory] = kind("backbone", "backbones")
        self.searchers: Kind[SearcherFactory] = kind("searcher", "searchers")
        self.creators: Kind[CreatorFactory] = kind("creator", "creators")
        self.benchmarks: Kind[BenchmarkSource] = kind("benchmark", "benchmarks")
        self.datasets: Kind[DatasetSource] = kind("data set", "datasets")
        # Our own come first, so that no plugin can change what leaderboards compare.
        ours = {name: Entry(name, metric, "core", OURS) for name, metric in METRICS.items()}
        self.metrics: Kind[Metric] = kind("metric", "metrics", ours, as_metric)
        self.executors: Kind[ExecutorFactory] = kind("executor", "executors")
        self.loggers: Kind[LoggerFactory] = kind("logger", "loggers")
        self.commands: Kind[CommandFactory] = kind("command", "commands")

    @property
    def kinds(self) -> dict[str, Kind[Any]]:
        """Every kind by its plural name."""
        return {kind.plural: kind for kind in vars(self).values() if isinstance(kind, Kind)}

    @property
    def known_metrics(self) -> dict[str, Metric]:
        """Every metric by its id: core's in their order, then those of plugins by name."""
        return {**METRICS, **{name: entry.factory for name, entry in self.metrics.items()}}

    def is_installed(self, plugin: str) -> bool:
        """Whether a plugin came by an entry point, and was not registered as an object."""
        return plugin in self._packages

    def package(self, plugin: str) -> str:
        """The package that a plugin came from; its own name where it was not installed."""
        return self._packages.get(plugin, plugin)
