"""Names -> what plugins registered under them, with the package each came from."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seu_bench.config.benchmark import BenchmarkSource
from seu_bench.errors import PluginError
from seu_bench.plugin.executors import ExecutorFactory
from seu_bench.plugin.loggers import LoggerFactory
from seu_bench.plugin.manager import PACKAGE, Entry, Kind, PluginManager, collect, load_plugins
from seu_bench.plugin.methods import CLASSES, PLUGINS, end_import, load_file, methods_in
from seu_bench.plugin.registration import CommandFactory, deferred
from seu_bench.results.metric import Metric, as_metric
from seu_bench.results.record_metrics import METRICS
from seu_bench.training.interfaces import BackboneFactory, ComponentFactory, StrategyFactory
from seu_bench.utils.reading import absolute

if TYPE_CHECKING:
    from seu_bench.data.dataset import DatasetSource  # imports NumPy
    from seu_bench.training.method import Method


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
        self.searchers: Kind[ComponentFactory] = kind("searcher", "searchers", needs="options build")
        self.creators: Kind[ComponentFactory] = kind("creator", "creators", needs="options build")
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


def is_installed(method: type[Method]) -> bool:
    """Whether an installed plugin offers a class by its name."""
    registry = Registry()
    entry = registry.strategies.get(method.name)
    target = f"{method.__module__}:{method.__qualname__}"
    return entry is not None and registry.is_installed(entry.plugin) and getattr(entry.factory, "target", "") == target


def use_plugins(files: str | Path | Iterable[str | Path] = (), methods: Iterable[type[Method]] = ()) -> Registry:
    """Offer files of Python, also in processes that are started from here, and classes, in this process alone.

    What is given later replaces a class of the same name.

    Returns:
        A registry with all that is installed, and these.

    Raises:
        PluginError: one cannot be imported, offers nothing, or has a name that is taken; then none is offered.

    Example:
        ``use_plugins(["my_method.py"]).strategies["mine"]``
    """
    end_import()
    paths = [absolute(path) for path in ([files] if isinstance(files, str | Path) else files)]
    named, before = os.environ.get(PLUGINS, ""), dict(CLASSES)
    try:
        for path in paths:
            for method in methods_in(load_file(path).module):
                CLASSES.pop(method.name, None)
        os.environ[PLUGINS] = os.pathsep.join(dict.fromkeys([*filter(None, named.split(os.pathsep)), *map(str, paths)]))
        given = {method.name: method for method in methods if not is_installed(method)}
        CLASSES.update(given)
        registry = Registry()
        manager = registry.manager
        for plugin, (file, _) in manager.files.items():
            names = [name for name, _ in manager.methods[plugin]]
            if file not in paths and not given.keys() & names:
                continue
            if plugin in registry.faults:
                raise registry.faults[plugin]
            if not names and not manager.get_hookcallers(manager.get_plugin(plugin)):
                remedy = "give a class of seu_bench.Method a name, as in: name = 'mine'"
                raise PluginError("the plugin offers nothing", where=str(file), remedy=remedy)
    except BaseException:
        os.environ[PLUGINS] = named
        CLASSES.clear()
        CLASSES.update(before)
        raise
    return registry
