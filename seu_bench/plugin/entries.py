"""Names that plugins register, with the plugin and the package that each came from. Light: no value is imported."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

from seu_bench.errors import PluginError, UnknownNameError
from seu_bench.plugin.manager import PACKAGE, PluginManager, broken, faults_told
from seu_bench.plugin.methods import MethodFactory
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
        if not isinstance(name, str) or not _PLAIN.fullmatch(name):
            raise broken(
                f"plugin {plugin!r} of package {package} registers the {singular} {name!r:.100}, which is no plain name"
                ": letters, digits, '_', '.', '+' and '-', 60 at the most, the first a letter or a digit",
                package,
            )
        # A method has all of them, and is imported when one is asked for.
        is_light = isinstance(factory, Unavailable | MethodFactory)
        if not is_light and (lacks := _lacking(factory, needs.split())):
            said = f"plugin {plugin!r} of package {package} registers the {singular} {name!r}, which has no {lacks}"
            raise broken(said, package)
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


def _lacking(factory: Any, needs: Sequence[str]) -> str:
    """What a factory lacks without which even listing it, and others beside it, would fail."""
    missing = [name for name in needs if not hasattr(factory, name)]
    if not missing and "options" in needs and not hasattr(factory.options, "model_fields"):
        missing = ["options that are a class of seu_bench.config.Options"]
    return ", ".join(missing)


def _taken(what: str, first: Entry[Any], plugin: str, package: str) -> PluginError:
    """Two plugins register one name, or one does it twice."""
    if first.package != package:
        by, remedy = f"by {first.package} and by {package}", f"leave one of them out: seu-bench -p no:{plugin} ..."
        if package.endswith(".py"):
            remedy = f"give it another name in {package}"
    else:
        both = f"both by its plugin {plugin!r}" if first.plugin == plugin else f"by {first.plugin!r} and by {plugin!r}"
        by, remedy = f"{both}, of package {package}", "give one of them another name"
    return PluginError(f"the {what} is registered twice: {by}", remedy=remedy)
