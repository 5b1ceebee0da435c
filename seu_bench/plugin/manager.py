"""Entry points -> a fresh plugin manager. No manager is shared or cached: two callers cannot disturb each other.

pluggy's own loader drops a second plugin of the same name silently, and one broken plugin stops all others. Here it
stops only what asks for it: it is left out, and the manager says why.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pluggy

from seu_bench import hookspecs
from seu_bench._version import __version__
from seu_bench.errors import PluginError
from seu_bench.plugin.files import CLASSES, find_source, load_file, plugin_files
from seu_bench.plugin.methods import GROUP, MethodFactory, methods_in

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from types import ModuleType

#: The package that core is part of. No plugin can take a name of it.
PACKAGE: Final = "seu-bench"
#: Environment variable with names of plugins or packages to leave out, divided by commas: ``-p no:NAME`` sets it, so
#: that processes of a run or a sweep leave them out, too.
WITHOUT: Final = "SEU_BENCH_WITHOUT"


class PluginManager(pluggy.PluginManager):
    """The plugins that can be used.

    Attributes:
        packages: package of each plugin that was loaded by entry point.
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
        """Offer the methods of a module, and register its hooks, as a plugin of this name."""
        self.methods[name] = [(method.name, MethodFactory(method)) for method in methods_in(module)]
        self.register(module, name=name)

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


def only_ours() -> bool:
    """Whether no other package brings plugins, as far as files can tell: :mod:`importlib.metadata` is slow to import.

    The answer is no where packages may be installed otherwise, in an archive or by an importer of their own.
    """
    folders = [Path(folder) for folder in sys.path]
    importers = [finder for finder in sys.meta_path if hasattr(finder, "find_distributions")]
    if importers != [PathFinder] or any(folder.is_file() for folder in folders):
        return False
    found = (file for folder in folders for file in folder.glob("*-[Ii][Nn][Ff][Oo]/entry_points.txt"))
    others = (file for file in found if not file.parent.name.startswith(("seu_bench-", "seu_bench.egg-info")))
    section = f"[{hookspecs.GROUP}".encode()  # of both groups
    try:
        return not any(section in file.read_bytes() for file in others)
    except OSError:
        return False


def _left_out() -> set[str]:
    return {name for name in os.environ.get(WITHOUT, "").split(",") if name}


def load_plugins(points: Iterable[tuple[EntryPoint, str]] | None = None) -> PluginManager:
    """Load the installed plugins of the entry-point group ``seu_bench``, and those of one file.

    One that cannot be imported, has the name of another one, or implements a hook that does not exist is left out.

    Args:
        points: entry points of the plugins to load with the package of each, and no files; by default all that are
            installed, files and classes.

    Returns:
        A manager of its own, with the plugins registered, and in ``faults`` why others are not.
    """
    manager = PluginManager()
    for point, package in installed_points() if points is None else points:
        name, value = point.name, point.value
        if name in manager.packages:
            first = manager.packages[name]
            manager.faults[f"{name} of {package}"] = PluginError(
                f"two plugins are called {name!r}: one from {first}, which is used, and one from {package}",
                remedy=f"uninstall one of them: pip uninstall {package if first == PACKAGE else first}",
            )
            continue
        manager.packages[name] = package
        if package != PACKAGE and (wanted := _unmet(point)):
            what = f"plugin {name!r} of package {package} needs {wanted}, and this is {__version__}"
            manager.faults[name] = broken(what, package, value)
            continue
        if point.group == GROUP:
            manager.methods[name] = [(name, MethodFactory(value))]
            continue
        try:
            plugin = point.load()
        except (Exception, SystemExit) as error:
            said = f"{type(error).__name__}: {error}"
            what = f"plugin {name!r} of package {package} cannot be imported: {said}"
            manager.faults[name] = broken(what, package, value)
            continue
        with _noted(manager, name, package, value):
            hash(plugin)  # pluggy keeps plugins in sets, and would say so at the first call of a hook only
            manager.register(plugin, name=name)
    if points is None:
        _load_files(manager)
    _leave_out_unknown_hooks(manager)
    return manager


@contextlib.contextmanager
def _noted(manager: PluginManager, name: str, package: str, where: str) -> Iterator[None]:
    """Note that a plugin cannot be registered, and leave it out."""
    try:
        yield
    except (pluggy.PluginValidationError, TypeError, ValueError) as error:
        if manager.has_plugin(name):
            manager.unregister(name=name)
        said = " ".join(str(error).split())
        manager.faults[name] = broken(f"plugin {name!r} of package {package} cannot be used: {said}", package, where)


def _load_files(manager: PluginManager) -> None:
    """Load the plugins of one file, and the methods that were given as classes, which replace those of files."""

    def free(name: str, other: str) -> str:
        return other if name in (*manager.owners(), *manager.faults) else name

    for path in plugin_files():
        if path.name in _left_out():
            continue
        owner = free(path.name, str(path))
        try:
            found = load_file(path)
        except PluginError as error:
            manager.faults[owner] = error
            continue
        manager.files[owner] = path, found.sha256
        with _noted(manager, owner, owner, str(path)):
            manager.add_module(found.module, owner)
        manager.methods[owner] = [it for it in manager.methods[owner] if it[0] not in CLASSES]
    for name, method in CLASSES.items():
        source = find_source(method)
        owner = free(source[0].name if source else method.__qualname__, f"{method.__module__}.{method.__qualname__}")
        manager.files[owner] = None, hashlib.sha256(source[1]).hexdigest() if source else None
        manager.methods[owner] = [(name, MethodFactory(method))]


def _unmet(point: EntryPoint) -> str | None:
    """The requirement of a plugin's package that this version of seu-bench does not meet."""
    from packaging.requirements import InvalidRequirement, Requirement

    for text in (point.dist.requires if point.dist else None) or ():
        with contextlib.suppress(InvalidRequirement):
            wanted = Requirement(text)
            applies = wanted.marker is None or wanted.marker.evaluate({"extra": ""})
            if wanted.name.lower().replace("_", "-") == PACKAGE and applies:
                return None if wanted.specifier.contains(__version__, prereleases=True) else text
    return None


def _leave_out_unknown_hooks(manager: PluginManager) -> None:
    """Leave out plugins that implement a hook that does not exist; pluggy names one at a time."""
    while True:
        try:
            return manager.check_pending()
        except pluggy.PluginValidationError as error:
            name = manager.get_name(error.plugin) or "?"
            manager.unregister(error.plugin)
            manager.faults[name] = PluginError(
                f"plugin {name!r} of package {manager.package(name)} implements an unknown hook: {error}",
                where=name,
                remedy="the hooks are listed in seu_bench/hookspecs.py",
            )


def faults_told(faults: Mapping[str, PluginError]) -> str:
    """Say which plugins cannot be used, for the error of a name that nobody registered; empty: all can."""
    return "".join(f"\n  unavailable: {error.what}" for error in faults.values())


def broken(what: str, package: str, where: str | None = None) -> PluginError:
    """The error that says what is wrong with a plugin of a package."""
    remedy = "repair the file" if package.endswith(".py") else f"repair or uninstall it: pip uninstall {package}"
    return PluginError(what, where=where, remedy=remedy)
