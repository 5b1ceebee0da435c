"""Entry points -> a fresh plugin manager. No manager is shared or cached: two callers cannot disturb each other.

pluggy's own loader drops a second plugin of the same name silently and lets a broken one raise a bare ImportError;
this loop names the plugin and the package in both cases.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.metadata import EntryPoint, EntryPoints, entry_points

import pluggy

from seu_bench import hookspecs
from seu_bench.errors import PluginError


def installed_points() -> EntryPoints:
    """The entry points of every installed plugin: the metadata of each installed package is read for them."""
    return entry_points(group=hookspecs.GROUP)


def load_plugins(points: Iterable[EntryPoint] | None = None) -> pluggy.PluginManager:
    """Load every installed plugin of the entry-point group ``seu_bench``.

    Args:
        points: the entry points of the plugins to load, all of :func:`installed_points` by default.

    Returns:
        A manager of its own, with the plugins registered.

    Raises:
        PluginError: a plugin cannot be imported, two share a name, or one implements a hook that does not exist.
    """
    manager = pluggy.PluginManager(hookspecs.GROUP)
    manager.add_hookspecs(hookspecs)
    owners: dict[str, str] = {}
    if points is None:
        points = installed_points()
    ordered = sorted(points, key=lambda point: point.name)
    for point, package in zip(ordered, packages_of(ordered), strict=True):
        if point.name in owners:
            raise PluginError(
                f"two plugins are called {point.name!r}: one from {owners[point.name]}, one from {package}",
                remedy=f"uninstall one of them: pip uninstall {package}",
            )
        owners[point.name] = package
        try:
            plugin = point.load()
        except Exception as error:
            raise PluginError(
                f"plugin {point.name!r} of package {package} cannot be imported: {type(error).__name__}: {error}",
                where=point.value,
                remedy=f"repair or uninstall it: pip uninstall {package}",
            ) from error
        try:
            manager.register(plugin, name=point.name)
        except (pluggy.PluginValidationError, ValueError) as error:
            raise PluginError(
                f"plugin {point.name!r} of package {package} cannot be used: {' '.join(str(error).split())}",
                where=point.value,
                remedy=f"repair or uninstall it: pip uninstall {package}",
            ) from error
    try:
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        name = manager.get_name(error.plugin) or "?"
        raise PluginError(
            f"plugin {name!r} of package {owners.get(name, '?')} implements an unknown hook: {error}",
            where=name,
            remedy="the hooks are listed in seu_bench/hookspecs.py",
        ) from error
    return manager


def packages_of(points: Sequence[EntryPoint]) -> list[str]:
    """Names of the distributions that entry points come from; each distribution's metadata are read once."""
    names: dict[int, str] = {}
    for point in points:
        if point.dist is not None and id(point.dist) not in names:
            names[id(point.dist)] = point.dist.name
    return [names.get(id(point.dist), "an unknown package") for point in points]
