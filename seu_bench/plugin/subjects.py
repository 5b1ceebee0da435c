"""What ``seu-bench check-plugin NAME`` checks: registered names, found without importing what they build."""

from __future__ import annotations

from typing import Any, NamedTuple

from seu_bench.errors import UnknownNameError
from seu_bench.plugin.code import modules_of
from seu_bench.plugin.entries import Entry
from seu_bench.plugin.manager import faults_told
from seu_bench.plugin.registry import Registry


class Subject(NamedTuple):
    """A registered name to run a contract on.

    Attributes:
        kind: in singular, e.g. ``strategy`` or ``data set``.
        modules: top-level import names of the code behind it.
    """

    kind: str
    entry: Entry[Any]
    modules: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.kind} {self.entry.name!r} of package {self.entry.package}"


def subjects(registry: Registry, name: str) -> list[Subject]:
    """Return everything that is registered as ``name``, of any kind, or else all that a plugin or package ``name`` has.

    Raises:
        PluginError: it is a plugin, or a package with one, that cannot be used.
        UnknownNameError: there is neither, it cannot be used here, or it offers nothing.
    """
    for plugin, fault in registry.faults.items():
        if name in (plugin, registry.package(plugin)):
            raise fault
    everything = [
        Subject(kind.singular, entry, frozenset(name.partition(".")[0] for name in modules_of(registry, entry)))
        for kind in registry.kinds.values()
        for entry in kind.values()
    ]
    for attribute in ("name", "plugin", "package"):
        if found := [subject for subject in everything if getattr(subject.entry, attribute) == name]:
            return found
    plugins = {owner: registry.package(owner) for owner, _ in registry.manager.list_name_plugin()}
    if name in {*plugins, *plugins.values()}:
        raise UnknownNameError(
            f"the plugin {name!r} registers nothing that can be checked",
            remedy="register a strategy, say, by a hook; hooks that watch runs have no contract",
        )
    for kind in registry.kinds.values():
        if name in kind.unavailable:
            kind.find(name)  # says what is missing
    from seu_bench.config.options import did_you_mean

    known = sorted(
        {word for subject in everything for word in (subject.entry.name, subject.entry.plugin, subject.entry.package)}
    )
    raise UnknownNameError(
        f"nothing that is installed is called {name!r}{did_you_mean(name, known)}{faults_told(registry.faults)}",
        remedy=f"name what a plugin registers (seu-bench list), or one of the plugins: {', '.join(sorted(plugins))}",
    )
