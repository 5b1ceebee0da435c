"""Entry points -> a fresh plugin manager. No manager is shared or cached: two callers cannot disturb each other.

pluggy's own loader drops a second plugin of the same name silently and lets a broken one raise a bare ImportError;
this loop names the plugin and the package in both cases.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

import pluggy

from seu_bench import hookspecs
from seu_bench.errors import PluginError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def installed_points() -> list[tuple[EntryPoint, str]]:
    """The entry points of installed plugins with the package of each, by the plugins' names."""
    from importlib.metadata import entry_points  # takes longer than all else that ``seu-bench --help`` imports

    points = sorted(entry_points(group=hookspecs.GROUP), key=lambda point: point.name)
    # A package's name is read from its metadata, and one package has many plugins.
    names = {dist: dist.name for dist in {point.dist for point in points} if dist is not None}
    return [(point, names[point.dist] if point.dist is not None else "an unknown package") for point in points]


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
    section = f"[{hookspecs.GROUP}]".encode()
    try:
        return not any(section in file.read_bytes() for file in others)
    except OSError:
        return False


def load_plugins(points: Iterable[tuple[EntryPoint, str]] | None = None) -> pluggy.PluginManager:
    """Load every installed plugin of the entry-point group ``seu_bench``.

    Args:
        points: entry points of the plugins to load with the package of each, all that are installed by default.

    Returns:
        A manager of its own, with the plugins registered.

    Raises:
        PluginError: a plugin cannot be imported, two share a name, or one implements a hook that does not exist.
    """
    manager = pluggy.PluginManager(hookspecs.GROUP)
    manager.add_hookspecs(hookspecs)
    owners: dict[str, str] = {}
    for point, package in installed_points() if points is None else points:
        name, value = point.name, point.value
        if name in owners:
            raise PluginError(
                f"two plugins are called {name!r}: one from {owners[name]}, one from {package}",
                remedy=f"uninstall one of them: pip uninstall {package}",
            )
        owners[name] = package
        try:
            plugin = point.load()
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            raise broken(f"plugin {name!r} of package {package} cannot be imported: {said}", package, value) from error
        try:
            hash(plugin)  # pluggy keeps plugins in sets, and would say so at the first call of a hook only
            manager.register(plugin, name=name)
        except (pluggy.PluginValidationError, TypeError, ValueError) as error:
            said = " ".join(str(error).split())
            raise broken(f"plugin {name!r} of package {package} cannot be used: {said}", package, value) from error
    try:
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        name = manager.get_name(error.plugin) or "?"
        raise PluginError(
            f"plugin {name!r} of package {owners.get(name)} implements an unknown hook: {error}",
            where=name,
            remedy="the hooks are listed in seu_bench/hookspecs.py",
        ) from error
    return manager


def broken(what: str, package: str, where: str | None = None) -> PluginError:
    """The error that says what is wrong with a plugin of a package."""
    return PluginError(what, where=where, remedy=f"repair or uninstall it: pip uninstall {package}")
