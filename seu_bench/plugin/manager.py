"""Entry points and files -> plugins, and the names that they register. Light: nothing that they build is imported.

No manager is shared or cached: two callers cannot disturb each other. pluggy's own loader drops a second plugin of the
same name silently, and one broken plugin stops all others. Here it is left out, and the manager says why.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import pluggy

from seu_bench import hookspecs
from seu_bench.errors import PluginError, UnknownNameError
from seu_bench.plugin.methods import (
    CLASSES,
    GROUP,
    MethodFactory,
    load_file,
    methods_in,
    plugin_files,
    source_digest,
    source_file,
)
from seu_bench.plugin.registration import Unavailable

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Factory = TypeVar("Factory")

#: The package that core is part of. No plugin can take a name of it.
PACKAGE: Final = "seu-bench"
#: Environment variable with names of plugins or packages to leave out, divided by commas: ``-p no:NAME`` sets it, so
#: that processes of a run or a sweep leave them out, too.
WITHOUT: Final = "SEU_BENCH_WITHOUT"
#: Names are typed on the command line and become parts of files' names.
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,59}")


class PluginManager(pluggy.PluginManager):
    """The plugins that can be used.

    Attributes:
        packages: package of each plugin that came by an entry point.
        faults: by plugin, why it, or a part of it, cannot be used.
        methods: methods by the name of the plugin that brings them: name and factory of each.
        files: by plugin of one file, its path and digest; those of a class may not be known.
    """

    def __init__(self) -> None:
        super().__init__(hookspecs.GROUP)
        self.add_hookspecs(hookspecs)
        self.packages: dict[str, str] = {}
        self.faults: dict[str, PluginError] = {}
        self.methods: dict[str, list[tuple[str, MethodFactory]]] = {}
        self.files: dict[str, tuple[Path | None, str | None]] = {}

    def add_module(self, module: ModuleType, name: str) -> None:
        """Offer the methods of a module, and register its hooks."""
        self.methods[name] = [(method.name, MethodFactory(method)) for method in methods_in(module)]
        self.add_plugin(module, name)

    def add_plugin(self, plugin: Any, name: str) -> None:
        """Register the hooks of a plugin, all of which must exist."""
        hash(plugin)  # pluggy keeps plugins in sets, and would say so at the first call of a hook only
        self.register(plugin, name=name)
        self.check_pending()

    @contextlib.contextmanager
    def faults_noted(self, name: str, where: str) -> Iterator[None]:
        """Leave out a plugin that cannot be used, and note why."""
        try:
            yield
        except PluginError as error:
            self.faults[name] = error
        except (Exception, SystemExit) as error:
            if self.has_plugin(name):
                self.unregister(name=name)
            said, package = " ".join(f"{type(error).__name__}: {error}".split()), self.package(name)
            self.faults[name] = broken(f"plugin {name!r} of package {package} cannot be used: {said}", package, where)

    def package(self, plugin: str) -> str:
        """The package that a plugin came from; its own name where it was not installed."""
        return self.packages.get(plugin, plugin)

    def owners(self) -> list[str]:
        """Names of the plugins, ours first, so that another one's name is the one that is refused."""
        names = {*dict(self.list_name_plugin()), *self.methods}
        return sorted(names, key=lambda name: (self.package(name) != PACKAGE, name))


def installed_points() -> list[tuple[EntryPoint, str]]:
    """The entry points of installed plugins with the package of each, by the plugins' names, ours first.

    Raises:
        PluginError: a plugin that is to be left out is not installed.
    """
    from importlib.metadata import entry_points  # takes longer than all else that ``seu-bench --help`` imports

    every = entry_points()
    points = sorted([*every.select(group=hookspecs.GROUP), *every.select(group=GROUP)], key=lambda it: it.name)
    # A package's name is read from its metadata, and one package has many plugins.
    names = {dist: dist.name for dist in {point.dist for point in points} if dist is not None}
    found = [(point, names[point.dist] if point.dist is not None else "an unknown package") for point in points]
    without = _left_out()
    known = {name for point, package in found for name in (point.name, package)}
    if unknown := without - known - {path.name for path in plugin_files()}:
        raise PluginError(
            f"no plugin to leave out is called {', '.join(sorted(unknown))}",
            where=f"-p no:NAME, or ${WITHOUT}",
            remedy=f"the plugins are: {', '.join(point.name for point, _ in found)}",
        )
    found.sort(key=lambda item: item[1] != PACKAGE)
    return [(point, package) for point, package in found if not {point.name, package} & without]


def load_plugins(points: Iterable[tuple[EntryPoint, str]] | None = None) -> PluginManager:
    """Load the installed plugins, and those of one file.

    One that cannot be imported, has the name of another one, or implements a hook that does not exist is left out.

    Args:
        points: entry points of the plugins to load with the package of each, and no files; by default all that are
            installed, files and classes.

    Returns:
        A manager of its own, with the plugins registered, and in ``faults`` why others are not.
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
            continue
        with manager.faults_noted(name, point.value):
            manager.add_plugin(point.load(), name)
    if points is None:
        _load_files(manager)
    return manager


def _load_files(manager: PluginManager) -> None:
    """Load the plugins of one file, and the methods that were given as classes, which replace those of files."""
    for path in plugin_files():
        if path.name in _left_out():
            continue
        owner = str(path) if path.name in (*manager.owners(), *manager.faults) else path.name
        with manager.faults_noted(owner, str(path)):
            found = load_file(path)
            manager.files[owner] = path, found.sha256
            manager.add_module(found.module, owner)
        manager.methods[owner] = [it for it in manager.methods.get(owner, ()) if it[0] not in CLASSES]
    for name, method in CLASSES.items():
        file = source_file(method)
        owner = file.name if file is not None else method.__qualname__
        owner = f"{method.__module__}.{method.__qualname__}" if owner in manager.owners() else owner
        manager.files[owner] = None, source_digest(method)
        manager.methods[owner] = [(name, MethodFactory(method))]


def _left_out() -> set[str]:
    return {name for name in os.environ.get(WITHOUT, "").split(",") if name}


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


class Kind(dict[str, Entry[Factory]]):
    """All names of one kind, e.g. every strategy, in their order.

    Attributes:
        unavailable: names that cannot be used, with an
            :class:`~seu_bench.plugin.registration.Unavailable` that says why.
        faults: by plugin, why it cannot be used: a name that is not here may be one of its names.
        by_path: finds an import path, ``module:Class``, which is known from then on; ``None``: it is no name.
    """

    def __init__(
        self, singular: str, plural: str, entries: Mapping[str, Entry[Any]], faults: Mapping[str, PluginError]
    ) -> None:
        self.singular, self.plural, self.faults = singular, plural, faults
        self.by_path: Callable[[str], Entry[Any]] | None = None
        missing = {name for name, entry in entries.items() if isinstance(entry.factory, Unavailable)}
        self.unavailable: dict[str, Entry[Unavailable]] = {name: entries[name] for name in sorted(missing)}
        super().__init__({name: entries[name] for name in sorted({*entries} - missing)})

    def find(self, name: str) -> Entry[Factory]:
        """The entry of ``name``.

        Raises:
            UnknownNameError: it is not registered, or unusable; the message lists those that are.
        """
        if name not in self and ":" in name and self.by_path is not None:
            self[name] = self.by_path(name)
        if name in self:
            return self[name]
        usable = f"the {self.plural} are: {', '.join(self) or 'none'} (seu-bench list {self.plural})"
        usable += "; --plugin FILE gives one of your own" if self.singular == "strategy" else ""
        if name in self.unavailable:
            missing = self.unavailable[name].factory
            what = f"the {self.singular} {name!r} cannot be used: {missing.reason}"
            raise UnknownNameError(what, remedy=missing.remedy or usable)
        from seu_bench.config.options import did_you_mean  # imports pydantic, which --help does without

        what = f"no {self.singular} is called {name!r}{did_you_mean(name, self)}{faults_told(self.faults)}"
        raise UnknownNameError(what, remedy=usable)


def collect(
    manager: PluginManager,
    singular: str,
    plural: str,
    ours: Mapping[str, Entry[Any]] | None = None,
    adapt: Callable[[Any], Any] = lambda factory: factory,
    *,
    needs: str = "",
) -> Kind[Any]:
    """Collect every name of one kind.

    The hook ``register_<plural>`` of each plugin is called by itself, so that the owner of each name is known. What
    goes wrong stops only that plugin, or that name: it is noted in the manager's ``faults``. A name that two packages
    register is unavailable, unless one of them is ours.

    Args:
        ours: entries of core; no plugin can take their names.
        adapt: applied to each factory of a plugin.
        needs: attributes that each factory has, with blanks between.
    """
    hook = f"register_{plural}"
    entries: dict[str, Entry[Any]] = dict(ours or {})

    def register(plugin: str, name: str, factory: Any) -> None:
        package = manager.package(plugin)
        said = f"plugin {plugin!r} of package {package} registers the {singular} {name!r:.100}, which"
        if not isinstance(name, str) or not _PLAIN.fullmatch(name):
            allowed = "letters, digits, '_', '.', '+' and '-', 60 at the most, the first a letter or a digit"
            raise broken(f"{said} is no plain name: {allowed}", package)
        # A method has all that is needed, and is imported when one is asked for.
        if not isinstance(factory, Unavailable | MethodFactory):
            lacks = [need for need in needs.split() if not hasattr(factory, need)]
            if not lacks and "options" in needs and not hasattr(factory.options, "model_fields"):
                lacks = ["options that are a class of seu_bench.config.Options"]
            if lacks:
                raise broken(f"{said} has no {', '.join(lacks)}", package)
        first = entries.get(name)
        if first is None:
            adapted = factory if isinstance(factory, Unavailable) else adapt(factory)
            entries[name] = Entry(name, adapted, plugin, package)
            return
        fault = _taken(f"{singular} {name!r}", first, plugin, package)
        manager.faults.setdefault(plugin, fault)
        if first.package != PACKAGE:
            manager.faults.setdefault(first.plugin, fault)
            entries[name] = Entry(name, Unavailable(fault.what, fault.remedy or ""), plugin, package)

    for owner in manager.owners():
        if singular == "strategy":
            for name, factory in manager.methods.get(owner, ()):
                register(owner, name, factory)
        if not manager.has_plugin(owner):
            continue
        others = [other for other in manager.get_plugins() if other is not manager.get_plugin(owner)]
        try:
            manager.subset_hook_caller(hook, others)(register=partial(register, owner))
        except PluginError as error:
            manager.faults.setdefault(owner, error)
        except Exception as error:
            package = manager.package(owner)
            said = f"plugin {owner!r} of package {package} failed in {hook}: {type(error).__name__}: {error}"
            manager.faults.setdefault(owner, broken(said, package))
    return Kind(singular, plural, entries, manager.faults)


def _taken(what: str, first: Entry[Any], plugin: str, package: str) -> PluginError:
    """Two plugins register one name, or one does it twice."""
    if first.package != package:
        remedy = f"leave one of them out: seu-bench -p no:{plugin} ..."
        remedy = f"give it another name in {package}" if package.endswith(".py") else remedy
        return PluginError(f"the {what} is registered twice: by {first.package} and by {package}", remedy=remedy)
    both = f"by its plugins {first.plugin!r} and {plugin!r}" if first.plugin != plugin else f"by its plugin {plugin!r}"
    said = f"the {what} is registered twice: {both}, of package {package}"
    return PluginError(said, remedy="give one of them another name")


def faults_told(faults: Mapping[str, PluginError]) -> str:
    """Say which plugins cannot be used, for the error of a name that nobody registered; empty: all can."""
    return "".join(f"\n  unavailable: {error.what}" for error in faults.values())


def broken(what: str, package: str, where: str | None = None) -> PluginError:
    """The error that says what is wrong with a plugin of a package."""
    remedy = "repair the file" if package.endswith(".py") else f"repair or uninstall it: pip uninstall {package}"
    return PluginError(what, where=where, remedy=remedy)
