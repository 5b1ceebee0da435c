"""Plugins by entry points, files and classes, and the names that they register. Nothing that they build is imported.

No manager is shared or cached: two callers cannot disturb each other. pluggy's own loader drops a second plugin of the
same name silently, and one broken plugin stops all others. Here it is left out, and ``faults`` say why.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import pluggy

from seu_bench import hookspecs
from seu_bench.errors import PluginError, RequestError, UnknownNameError
from seu_bench.plugin.methods import (
    CLASSES,
    GROUP,
    PLUGINS,
    MethodFactory,
    end_import,
    load_file,
    methods_in,
    plugin_files,
    source_digest,
    source_file,
)
from seu_bench.plugin.registration import CommandFactory, Deferred, Unavailable
from seu_bench.utils.reading import absolute
from seu_bench.utils.text import printable

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from seu_bench.config.benchmark import BenchmarkSource
    from seu_bench.config.run import Request
    from seu_bench.data.dataset import DatasetSource
    from seu_bench.plugin.executors import ExecutorFactory
    from seu_bench.plugin.loggers import LoggerFactory
    from seu_bench.results.metric import Metric
    from seu_bench.training.interfaces import (
        BackboneFactory,
        ComponentFactory,
        EncoderFactory,
        SpaceFactory,
        StrategyFactory,
    )
    from seu_bench.training.method import Method

Factory = TypeVar("Factory")

#: The package that core is part of. No plugin can take a name of it.
PACKAGE: Final = "seu-bench"
#: Names are typed on the command line and become parts of files' names.
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,59}")


class PluginManager(pluggy.PluginManager):
    """The plugins that can be used.

    Attributes:
        packages: package of each plugin that came by an entry point.
        faults: by plugin, why it, or a part of it, cannot be used; nothing else is stopped by it.
        methods: methods by the name of the plugin that brings them: name and factory of each.
        files: by plugin of one file, its path and digest; of a class there is no path.
    """

    def __init__(self) -> None:
        super().__init__(hookspecs.GROUP)
        self.add_hookspecs(hookspecs)
        self.packages: dict[str, str] = {}
        self.faults: dict[str, PluginError] = {}
        self.methods: dict[str, list[tuple[str, MethodFactory]]] = {}
        self.files: dict[str, tuple[Path | None, str | None]] = {}

    def add(self, name: str, load: Callable[[], Any], where: str) -> None:
        """Register the hooks of a plugin, all of which must exist; one that cannot be used is left out."""
        try:
            plugin = load()
            hash(plugin)  # pluggy keeps plugins in sets, and would say so at the first call of a hook only
            self.register(plugin, name=name)
            self.check_pending()
        except PluginError as error:
            self.faults[name] = error
        except (Exception, SystemExit) as error:
            if self.has_plugin(name):
                self.unregister(name=name)
            said, package = " ".join(f"{type(error).__name__}: {error}".split()), self.package(name)
            self.faults[name] = broken_plugin_error(
                f"plugin {name!r} of package {package} cannot be used: {said}", package, where
            )

    def add_file(self, name: str, path: Path) -> ModuleType:
        """Import a file, offer its methods, and return its module."""
        found = load_file(path)
        self.files[name] = path, found.sha256
        self.add_methods(name, found.module)
        return found.module

    def add_methods(self, name: str, module: ModuleType) -> None:
        """Offer the methods that a module defines, but for those that classes replace."""
        self.methods[name] = [(it.name, MethodFactory(it)) for it in methods_in(module) if it.name not in CLASSES]

    def package(self, plugin: str) -> str:
        """The package that a plugin came from; its own name where it was not installed."""
        return self.packages.get(plugin, plugin)

    def owners(self) -> list[str]:
        """Names of the plugins, ours first, so that another one's name is the one that is refused."""
        names = {*dict(self.list_name_plugin()), *self.methods}
        return sorted(names, key=lambda name: (self.package(name) != PACKAGE, name))


def installed_points() -> list[tuple[EntryPoint, str]]:
    """The entry points of installed plugins with the package of each, by the plugins' names, ours first."""
    from importlib.metadata import entry_points  # takes longer than all else that ``seu-bench --help`` imports

    every = entry_points()
    points = [*every.select(group=hookspecs.GROUP), *every.select(group=GROUP)]
    # A package's name is read from its metadata, and one package has many plugins.
    names = {dist: dist.name for dist in {point.dist for point in points} if dist is not None}
    found = [(point, names[point.dist] if point.dist is not None else "an unknown package") for point in points]
    return sorted(found, key=lambda item: (item[1] != PACKAGE, item[0].name))


def load_plugins(points: Iterable[tuple[EntryPoint, str]] | None = None) -> PluginManager:
    """Load plugins. One that cannot be imported, has the name of another, or has an unknown hook is left out.

    Args:
        points: entry points with the package of each; by default all that are installed, and files and classes.
    """
    manager = PluginManager()
    for point, package in installed_points() if points is None else points:
        name = point.name
        if (first := manager.packages.get(name)) is not None:
            manager.faults[f"{name} of {package}"] = PluginError(
                f"two plugins are called {name!r}: one from {first}, which is used, and one from {package}",
                remedy=f"uninstall one of them: pip uninstall {package if first == PACKAGE else first}",
            )
            continue
        manager.packages[name] = package
        if point.group == GROUP:
            manager.methods[name] = [(name, MethodFactory(point.value))]
        else:
            manager.add(name, point.load, point.value)
    if points is not None:
        return manager
    for path in plugin_files():
        owner = str(path) if path.name in (*manager.owners(), *manager.faults) else path.name
        manager.add(owner, partial(manager.add_file, owner, path), str(path))
    for name, method in CLASSES.items():  # which replace those of files
        file = source_file(method)
        owner = file.name if file is not None else method.__qualname__
        owner = f"{method.__module__}.{method.__qualname__}" if owner in manager.owners() else owner
        manager.files[owner] = None, source_digest(method)
        manager.methods[owner] = [(name, MethodFactory(method))]
    return manager


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

    @property
    def title(self) -> str:
        """Display name, as papers write it; the name where none is stated."""
        return printable(str(getattr(self.factory, "title", "") or self.name))

    @property
    def citation(self) -> str:
        """BibTeX entries of its papers; empty where none is stated."""
        from seu_bench.results.names import resolve_citation

        return resolve_citation(str(getattr(self.factory, "citation", "") or ""), self.name, self.title)


class Kind(dict[str, Entry[Factory]]):
    """All names of one kind, e.g. every strategy, in their order.

    Attributes:
        unavailable: names that cannot be used, with an :class:`~seu_bench.plugin.Unavailable` that says why.
        faults: by plugin, why it cannot be used: a name that is not here may be one of its names.
        by_path: finds an import path, ``module:Class``, which is known from then on; ``None``: it is no name.
    """

    def __init__(
        self, singular: str, plural: str, entries: Mapping[str, Entry[Any]], faults: Mapping[str, PluginError]
    ) -> None:
        self.singular, self.plural, self.faults = singular, plural, faults
        self.by_path: Callable[[str], Entry[Any]] | None = None
        ordered = {name: entries[name] for name in sorted(entries)}
        self.unavailable = {name: it for name, it in ordered.items() if isinstance(it.factory, Unavailable)}
        super().__init__({name: it for name, it in ordered.items() if name not in self.unavailable})

    def spelled(self, name: str) -> str:
        """Return the registered name that differs in case, hyphens and pluses alone; ``name`` itself: there is none."""
        return name if name in self else next((it for it in self if _folded(it) == _folded(name)), name)

    def find(self, name: str) -> Entry[Factory]:
        """The entry of ``name``.

        Raises:
            UnknownNameError: it is not registered, or unusable; the message lists those that are.
        """
        if name not in self and ":" in name and self.by_path is not None:
            self[name] = self.by_path(name)
        if (found := self.spelled(name)) in self:
            return self[found]
        usable = f"the {self.plural} are: {', '.join(self) or 'none'} (seu-bench list {self.plural})"
        usable += "; --plugin FILE gives one of your own" if self.singular == "strategy" else ""
        if "," in name:
            usable = f"give one of them, or all to seu-bench sweep --{self.singular} {name}"
        if name in self.unavailable:
            missing = self.unavailable[name].factory
            what = f"the {self.singular} {name!r} cannot be used: {missing.reason}"
            raise UnknownNameError(what, remedy=missing.remedy or usable)
        from seu_bench.config.options import did_you_mean  # imports pydantic, which --help does without

        what = f"no {self.singular} is called {name!r}{did_you_mean(name, self)}{faults_told(self.faults)}"
        raise UnknownNameError(what, remedy=usable)


def _folded(name: str) -> str:
    return name.casefold().replace("-", "_").replace(" ", "_").replace("+", "p")


def collect(
    manager: PluginManager,
    singular: str,
    plural: str,
    ours: Mapping[str, Entry[Any]] | None = None,
    adapt: Callable[[Any], Any] = lambda factory: factory,
    *,
    needs: str = "",
) -> Kind[Any]:
    """Collect every name of one kind: core's own, which no plugin can take, and what the hook of each plugin offers.

    What goes wrong stops only that plugin, or that name: it is noted in the manager's ``faults``. A name that two
    packages register is unavailable. Factories have the attributes in ``needs``, and are adapted by ``adapt``.
    """
    hook = f"register_{plural}"
    entries: dict[str, Entry[Any]] = dict(ours or {})

    def register(plugin: str, name: str, factory: Any) -> None:
        package = manager.package(plugin)
        said = f"plugin {plugin!r} of package {package} registers the {singular} {name!r:.100}, which"
        if not isinstance(name, str) or not _PLAIN.fullmatch(name):
            allowed = "letters, digits, '_', '.', '+' and '-', 60 at the most, the first a letter or a digit"
            raise broken_plugin_error(f"{said} is no plain name: {allowed}", package)
        # A method has all that is needed, and is imported when one is asked for.
        needed = () if isinstance(factory, Unavailable | MethodFactory) else needs.split()
        lacks = [need for need in needed if not hasattr(factory, need)]
        if "options" in needed and not hasattr(getattr(factory, "options", None), "model_fields"):
            lacks = ["options that are a class of seu_bench.config.Options"]
        if lacks:
            raise broken_plugin_error(f"{said} has no {', '.join(lacks)}", package)
        first = entries.get(name)
        if first is None:
            adapted = factory if isinstance(factory, Unavailable) else adapt(factory)
            entries[name] = Entry(name, adapted, plugin, package)
            return
        fault = _duplicate_error(f"{singular} {name!r}", first, plugin, package)
        manager.faults.setdefault(plugin, fault)
        if first.package != PACKAGE:
            manager.faults.setdefault(first.plugin, fault)
            entries[name] = Entry(name, Unavailable(fault.what, fault.remedy or ""), plugin, package)

    for owner in manager.owners():
        try:
            for name, factory in manager.methods.get(owner, ()) if singular == "strategy" else ():
                register(owner, name, factory)
            if manager.has_plugin(owner):
                others = [other for other in manager.get_plugins() if other is not manager.get_plugin(owner)]
                manager.subset_hook_caller(hook, others)(register=partial(register, owner))
        except PluginError as error:
            manager.faults.setdefault(owner, error)
        except Exception as error:
            package = manager.package(owner)
            said = f"plugin {owner!r} of package {package} failed in {hook}: {type(error).__name__}: {error}"
            manager.faults.setdefault(owner, broken_plugin_error(said, package))
    return Kind(singular, plural, entries, manager.faults)


def _duplicate_error(what: str, first: Entry[Any], plugin: str, package: str) -> PluginError:
    """Two plugins register one name, or one does it twice."""
    by = f"by {first.package} and by {package}"
    if first.package == package:
        by = f"by its plugins {first.plugin!r} and {plugin!r}, of package {package}"
    remedy = f"give it another name in {package}, or uninstall one of them"
    return PluginError(f"the {what} is registered twice: {by}", remedy=remedy)


def faults_told(faults: Mapping[str, PluginError]) -> str:
    """Say which plugins cannot be used, for the error of a name that nobody registered; empty: all can."""
    return "".join(f"\n  unavailable: {error.what}" for error in faults.values())


def broken_plugin_error(what: str, package: str, where: str | None = None) -> PluginError:
    """The error that says what is wrong with a plugin of a package."""
    remedy = "repair the file" if package.endswith(".py") else f"repair or uninstall it: pip uninstall {package}"
    return PluginError(what, where=where, remedy=remedy)


class Registry:
    """Everything that plugins offer, those installed by default; ``faults`` say why some, or parts, cannot be used."""

    def __init__(self, manager: PluginManager | None = None) -> None:
        from seu_bench.results.metric import Metric
        from seu_bench.results.record_metrics import METRICS

        self.manager = load_plugins() if manager is None else manager
        self.faults = self.manager.faults
        kind = partial(collect, self.manager)
        self.strategies: Kind[StrategyFactory] = kind("strategy", "strategies", needs="options build")
        self.strategies.by_path = Deferred("seu_bench.plugin.paths:strategy_by_path")
        self.backbones: Kind[BackboneFactory] = kind("backbone", "backbones", needs="build")
        self.encoders: Kind[EncoderFactory] = kind("encoder", "encoders", needs="info load")
        self.searchers: Kind[ComponentFactory] = kind("searcher", "searchers", needs="options build")
        self.creators: Kind[ComponentFactory] = kind("creator", "creators", needs="options build")
        self.spaces: Kind[SpaceFactory] = kind("space", "spaces", needs="build")
        self.benchmarks: Kind[BenchmarkSource] = kind("benchmark", "benchmarks", needs="load")
        self.datasets: Kind[DatasetSource] = kind("data set", "datasets")
        # Our own come first, so that no plugin can change what leaderboards compare.
        ours = {name: Entry(name, metric, "core", PACKAGE) for name, metric in METRICS.items()}
        self.metrics: Kind[Metric] = kind(
            "metric", "metrics", ours, lambda given: given if isinstance(given, Metric) else Metric(given)
        )
        self.executors: Kind[ExecutorFactory] = kind("executor", "executors", needs="options build")
        self.loggers: Kind[LoggerFactory] = kind("logger", "loggers", needs="options build")
        self.commands: Kind[CommandFactory] = kind("command", "commands", needs="build")
        #: Every metric by its id: core's in their order, then those of plugins by name.
        self.known_metrics = {**METRICS, **{name: entry.factory for name, entry in self.metrics.items()}}

    @property
    def kinds(self) -> dict[str, Kind[Any]]:
        """Every kind by its plural name."""
        return {kind.plural: kind for kind in vars(self).values() if isinstance(kind, Kind)}

    def with_names(self, request: Request) -> Request:
        """Return a request with names as they are registered; what is a file or a folder is no name."""
        names: dict[str, str] = {}
        for kind in self.kinds.values():
            given = getattr(request, kind.singular, None)
            if isinstance(given, str) and not Path(given).exists():
                names[kind.singular] = kind.spelled(given)
        return request.model_copy(update=names)


def find_named(known: Kind[Any], name: str, key: str) -> Any:
    """The factory ``NAME``, or of many that are registered as one, ``KIND:NAME``; a RequestError: there is none."""
    kind, colon, which = name.partition(":")
    try:
        factory = known.find(kind).factory
    except UnknownNameError as error:
        if colon or "timm" not in known or kind in known.unavailable:
            raise
        raise UnknownNameError(error.what, remedy=f"for timm's give {key}=timm:{name}; {error.remedy}") from error
    select = getattr(factory, "select", None)
    if bool(colon) != (select is not None):
        what = f"{kind!r} is {'one network' if select is None else 'many networks'}"
        remedy = f"give {key}={kind}" if select is None else f"name one of them, such as {key}={kind}:{factory.example}"
        raise RequestError(what, where=f"{key} = {name!r}", remedy=remedy)
    return factory if select is None else select(which)


def is_installed(method: type[Method]) -> bool:
    """Whether an installed plugin offers a class by its name."""
    asked = GROUP, method.name, f"{method.__module__}:{method.__qualname__}"
    return any((point.group, point.name, point.value) == asked for point, _ in installed_points())


def use_plugins(files: str | Path | Iterable[str | Path] = (), methods: Iterable[type[Method]] = ()) -> Registry:
    """Offer files of Python, also in processes that are started from here, and classes, in this process alone.

    What is given later replaces a class of the same name.

    Returns:
        A registry with all that is installed, and these.

    Raises:
        PluginError: one cannot be imported, offers nothing, or has a name that is taken; then none is offered.
    """
    end_import()
    paths = [absolute(path) for path in ([files] if isinstance(files, str | Path) else files)]
    named, before = os.environ.get(PLUGINS, ""), dict(CLASSES)
    try:
        for method in (it for path in paths for it in methods_in(load_file(path).module)):
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
