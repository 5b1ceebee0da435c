"""Names that plugins register, with the plugin and the package that each came from. Light: no value is imported."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

import pluggy

from seu_bench.errors import PluginError, UnknownNameError
from seu_bench.plugin.manager import broken
from seu_bench.plugin.registration import Unavailable

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


class Kind(dict[str, Entry[Factory]]):
    """All names of one kind, e.g. every strategy, in their order.

    Attributes:
        unavailable: names that cannot be used, with an
            :class:`~seu_bench.plugin.registration.Unavailable` that says why.
    """

    def __init__(self, singular: str, plural: str, entries: Mapping[str, Entry[Any]]) -> None:
        self.singular, self.plural = singular, plural
        missing = {name for name, entry in entries.items() if isinstance(entry.factory, Unavailable)}
        self.unavailable: dict[str, Entry[Unavailable]] = {name: entries[name] for name in sorted(missing)}
        super().__init__({name: entries[name] for name in sorted({*entries} - missing)})

    def find(self, name: str) -> Entry[Factory]:
        """The entry of ``name``.

        Raises:
            UnknownNameError: it is not registered, or unusable; the message lists those that are.
        """
        if name in self:
            return self[name]
        usable = f"the {self.plural} are: {', '.join(self) or 'none'} (seu-bench list {self.plural})"
        if name in self.unavailable:
            missing = self.unavailable[name].factory
            what = f"the {self.singular} {name!r} cannot be used: {missing.reason}"
            raise UnknownNameError(what, remedy=missing.remedy or usable)
        from seu_bench.config.options import did_you_mean  # imports pydantic, which --help does without

        raise UnknownNameError(f"no {self.singular} is called {name!r}{did_you_mean(name, self)}", remedy=usable)


def collect(
    manager: pluggy.PluginManager,
    packages: Mapping[str, str],
    singular: str,
    plural: str,
    ours: Mapping[str, Entry[Any]] | None = None,
    adapt: Callable[[Any], Any] = lambda factory: factory,
) -> Kind[Any]:
    """Collect every name of one kind.

    The hook ``register_<plural>`` of each plugin is called by itself, so that the owner of each name is known.

    Args:
        packages: package of each installed plugin; another one counts as a package of its own.
        ours: entries of core; no plugin can take their names.
        adapt: applied to each factory of a plugin.

    Raises:
        PluginError: a plugin fails in the hook, registers a name that is taken, or one that is not plain.
    """
    hook = f"register_{plural}"
    entries: dict[str, Entry[Any]] = dict(ours or {})

    def register(plugin: str, package: str, name: str, factory: Any) -> None:
        if not isinstance(name, str) or not _PLAIN.fullmatch(name):
            raise broken(
                f"plugin {plugin!r} of package {package} registers the {singular} {name!r:.100}, which is no plain name"
                ": letters, digits, '_', '.', '+' and '-', 60 at the most, the first a letter or a digit",
                package,
            )
        if name in entries:
            raise _taken(f"{singular} {name!r}", entries[name], plugin, package)
        adapted = factory if isinstance(factory, Unavailable) else adapt(factory)
        entries[name] = Entry(name, adapted, plugin, package)

    for owner, plugin in manager.list_name_plugin():
        others = [other for other in manager.get_plugins() if other is not plugin]
        package = packages.get(owner, owner)
        try:
            manager.subset_hook_caller(hook, others)(register=partial(register, owner, package))
        except PluginError:
            raise
        except Exception as error:
            said = f"failed in {hook}: {type(error).__name__}: {error}"
            raise broken(f"plugin {owner!r} of package {package} {said}", package) from error
    return Kind(singular, plural, entries)


def _taken(what: str, first: Entry[Any], plugin: str, package: str) -> PluginError:
    """Two plugins register one name, or one does it twice."""
    if first.package != package:
        by, remedy = f"by {first.package} and by {package}", f"uninstall one of them: pip uninstall {package}"
    else:
        both = f"both by its plugin {plugin!r}" if first.plugin == plugin else f"by {first.plugin!r} and by {plugin!r}"
        by, remedy = f"{both}, of package {package}", "give one of them another name"
    return PluginError(f"the {what} is registered twice: {by}", remedy=remedy)
