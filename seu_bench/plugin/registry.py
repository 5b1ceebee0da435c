"""Names -> what plugins registered under them, with the package each came from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import pluggy

from seu_bench.config.benchmark import BenchmarkSource
from seu_bench.config.options import did_you_mean
from seu_bench.errors import PluginError, UnknownNameError
from seu_bench.metrics import CURVES, METRIC_DEFINITIONS
from seu_bench.plugin.executors import ExecutorFactory
from seu_bench.plugin.loggers import LoggerFactory
from seu_bench.plugin.manager import installed_points, load_plugins, packages_of
from seu_bench.plugin.registration import Unavailable
from seu_bench.results.record_metrics import KnownMetric, MetricFunction
from seu_bench.training.interfaces import BackboneFactory, CreatorFactory, SearcherFactory, StrategyFactory

if TYPE_CHECKING:
    from seu_bench.data.dataset import DatasetSource  # imports NumPy

Factory = TypeVar("Factory")

#: Names are typed on the command line and become parts of files' names.
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,59}")


@dataclass(frozen=True)
class Entry(Generic[Factory]):
    """One registered name."""

    name: str
    factory: Factory
    plugin: str
    package: str

    @property
    def summary(self) -> str:
        """One line that says what it is."""
        return str(getattr(self.factory, "summary", "") or "")


class Kind(Mapping[str, Entry[Factory]]):
    """All names of one kind, e.g. every strategy.

    Attributes:
        unavailable: names that cannot be used, with an
            :class:`~seu_bench.plugin.registration.Unavailable` that says why.
    """

    def __init__(self, singular: str, plural: str, entries: Mapping[str, Entry[Any]]) -> None:
        self.singular = singular
        self.plural = plural
        named = dict(sorted(entries.items()))
        self.unavailable: dict[str, Entry[Unavailable]] = {
            name: entry for name, entry in named.items() if isinstance(entry.factory, Unavailable)
        }
        self._entries: dict[str, Entry[Factory]] = {
            name: entry for name, entry in named.items() if name not in self.unavailable
        }

    def __getitem__(self, name: str) -> Entry[Factory]:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, name: str) -> Entry[Factory]:
        """The entry of ``name``.

        Raises:
            UnknownNameError: nobody registered it, or it cannot be used; the message says what there is.
        """
        if name in self.unavailable:
            missing = self.unavailable[name].factory
            raise UnknownNameError(
                f"the {self.singular} {name!r} cannot be used: {missing.reason}",
                remedy=missing.remedy
                or f"the {self.plural} are: {', '.join(self._entries)} (seu-bench list {self.plural})",
            )
        if name not in self._entries:
            raise UnknownNameError(
                f"no {self.singular} is called {name!r}{did_you_mean(name, self._entries)}",
                remedy=f"the {self.plural} are: {', '.join(self._entries) or 'none'} (seu-bench list {self.plural})",
            )
        return self._entries[name]


class Registry:
    """Everything that installed plugins offer.

    Args:
        manager: the plugins; those of this installation where it is left out.

    Raises:
        PluginError: a plugin cannot be loaded, or two register the same name.
    """

    def __init__(self, manager: pluggy.PluginManager | None = None) -> None:
        points = installed_points()
        self.manager = load_plugins(points) if manager is None else manager
        names = [point.name for point in points]
        self._packages = dict(zip(names, packages_of(tuple(points)), strict=True))
        self.strategies: Kind[StrategyFactory] = self._collect("strategy", "strategies")
        self.backbones: Kind[BackboneFactory] = self._collect("backbone", "backbones")
        self.searchers: Kind[SearcherFactory] = self._collect("searcher", "searchers")
        self.creators: Kind[CreatorFactory] = self._collect("creator", "creators")
        self.benchmarks: Kind[BenchmarkSource] = self._collect("benchmark", "benchmarks")
        self.datasets: Kind[DatasetSource] = self._collect("data set", "datasets")
        # Our own come first, so that no plugin can change what leaderboards compare.
        ours = {
            name: Entry(name, KnownMetric(name), "core", "seu-bench")
            for name in METRIC_DEFINITIONS
            if name not in CURVES
        }
        self.metrics: Kind[MetricFunction] = self._collect("metric", "metrics", ours)
        self.executors: Kind[ExecutorFactory] = self._collect("executor", "executors")
        self.loggers: Kind[LoggerFactory] = self._collect("logger", "loggers")

    @property
    def kinds(self) -> dict[str, Kind[Any]]:
        """Every kind by its plural name."""
        kinds: tuple[Kind[Any], ...] = (
            self.strategies,
            self.backbones,
            self.searchers,
            self.creators,
            self.benchmarks,
            self.datasets,
            self.metrics,
            self.executors,
            self.loggers,
        )
        return {kind.plural: kind for kind in kinds}

    def package(self, plugin: str) -> str:
        """The package that a plugin came from; its own name where it was not installed."""
        return self._packages.get(plugin, plugin)

    def _collect(self, singular: str, plural: str, ours: Mapping[str, Entry[Any]] | None = None) -> Kind[Any]:
        """Call the hook ``register_<plural>`` of each plugin by itself, so that each name's owner is known."""
        hook = f"register_{plural}"
        entries: dict[str, Entry[Any]] = dict(ours or {})
        for plugin, owner in ((plugin, name) for name, plugin in self.manager.list_name_plugin()):
            if plugin is None:
                continue
            others = [other for other in self.manager.get_plugins() if other is not plugin]
            caller = self.manager.subset_hook_caller(hook, others)
            package = self.package(owner)
            try:
                caller(register=_collector(entries, singular, owner, package))
            except PluginError:
                raise
            except Exception as error:
                raise PluginError(
                    f"plugin {owner!r} of package {package} failed in {hook}: {type(error).__name__}: {error}",
                    remedy=f"repair or uninstall it: pip uninstall {package}",
                ) from error
        return Kind(singular, plural, entries)


def _collector(entries: dict[str, Entry[Any]], singular: str, plugin: str, package: str) -> Callable[[str, Any], None]:
    def register(name: str, factory: Any) -> None:
        if not isinstance(name, str) or not _PLAIN.fullmatch(name):
            raise PluginError(
                f"plugin {plugin!r} of package {package} registers the {singular} {name!r:.100}, which is no plain name"
                ": letters, digits, '_', '.', '+' and '-', 60 at the most, the first a letter or a digit",
                remedy=f"repair or uninstall it: pip uninstall {package}",
            )
        if name in entries:
            other = entries[name]
            raise PluginError(
                f"the {singular} {name!r} is registered twice: by {other.package} and by {package}",
                remedy=f"uninstall one of them: pip uninstall {package}",
            )
        entries[name] = Entry(name, factory, plugin, package)

    return register
