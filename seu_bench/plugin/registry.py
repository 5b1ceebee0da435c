"""Names -> what plugins registered under them, with the package each came from."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from seu_bench.config.benchmark import BenchmarkSource
from seu_bench.plugin.entries import Entry, Kind, collect
from seu_bench.plugin.executors import ExecutorFactory
from seu_bench.plugin.loggers import LoggerFactory
from seu_bench.plugin.manager import PACKAGE, PluginManager, load_plugins
from seu_bench.plugin.registration import CommandFactory, deferred
from seu_bench.results.metric import Metric, as_metric
from seu_bench.results.record_metrics import METRICS
from seu_bench.training.components import CreatorFactory, SearcherFactory
from seu_bench.training.interfaces import BackboneFactory, StrategyFactory

if TYPE_CHECKING:
    from seu_bench.data.dataset import DatasetSource  # imports NumPy


class Registry:
    """Everything that installed plugins offer.

    Args:
        manager: the plugins; those installed by default.

    Attributes:
        faults: by plugin, why it, or a part of it, cannot be used; nothing else is stopped by it.
    """

    def __init__(self, manager: PluginManager | None = None) -> None:
        self.manager = load_plugins() if manager is None else manager
        self.faults = self.manager.faults
        kind = partial(collect, self.manager)
        self.strategies: Kind[StrategyFactory] = kind("strategy", "strategies", needs="options build")
        self.strategies.by_path = deferred("seu_bench.plugin.paths:strategy_by_path")
        self.backbones: Kind[BackboneFactory] = kind("backbone", "backbones", needs="build")
        self.searchers: Kind[SearcherFactory] = kind("searcher", "searchers", needs="options build")
        self.creators: Kind[CreatorFactory] = kind("creator", "creators", needs="options build")
        self.benchmarks: Kind[BenchmarkSource] = kind("benchmark", "benchmarks", needs="load")
        self.datasets: Kind[DatasetSource] = kind("data set", "datasets")
        # Our own come first, so that no plugin can change what leaderboards compare.
        ours = {name: Entry(name, metric, "core", PACKAGE) for name, metric in METRICS.items()}
        self.metrics: Kind[Metric] = kind("metric", "metrics", ours, as_metric)
        self.executors: Kind[ExecutorFactory] = kind("executor", "executors", needs="options build")
        self.loggers: Kind[LoggerFactory] = kind("logger", "loggers", needs="options build")
        self.commands: Kind[CommandFactory] = kind("command", "commands", needs="build")

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
        return plugin in self.manager.packages

    def package(self, plugin: str) -> str:
        """The package that a plugin came from; its own name where it was not installed."""
        return self.manager.package(plugin)
