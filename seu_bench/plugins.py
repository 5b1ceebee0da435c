"""Entry points -> a fresh plugin manager. No manager is shared and none is kept: two callers cannot disturb each other.

pluggy's own loader drops a second plugin of the same name silently and lets a broken one raise a bare ImportError;
this loop names the plugin and the package in both cases.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

import pluggy

from seu_bench import hookspecs
from seu_bench.errors import PluginError


def load_plugins() -> pluggy.PluginManager:
    """Load every installed plugin of the entry-point group ``seu_bench``.

    Raises:
        PluginError: a plugin cannot be imported, two share a name, or one implements a hook that does not exist.
    """
    manager = pluggy.PluginManager(hookspecs.GROUP)
    manager.add_hookspecs(hookspecs)
    owners: dict[str, str] = {}
    for point in sorted(entry_points(group=hookspecs.GROUP), key=lambda point: point.name):
        package = package_of(point)
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


def package_of(point: EntryPoint) -> str:
    """Name of the distribution an entry point comes from."""
    return point.dist.name if point.dist is not None else "an unknown package"
