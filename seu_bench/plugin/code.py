"""The code behind registered names: its package, a digest of its source, and what ``check-plugin`` takes."""

from __future__ import annotations

import contextlib
import hashlib
import sys
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

from seu_bench.config.benchmark_file import BenchmarkFile
from seu_bench.errors import UnknownNameError
from seu_bench.plugin.manager import Entry, faults_told
from seu_bench.plugin.methods import MethodFactory
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import CodeRecord
from seu_bench.utils.reading import read_file

#: Top-level packages that are nobody's plugin.
_NOT_OF_PLUGINS: Final = frozenset({"seu_bench", *sys.stdlib_module_names})
#: Digests as this process saw them first, by the first file of each.
_FIRST_SEEN: Final[dict[str, str]] = {}


def describe_code(registry: Registry, kind: str, entry: Entry[Any]) -> CodeRecord:
    """Describe the code of a registered name, as it lies on disk now. What it builds is not imported.

    Args:
        registry: that has it.
        kind: in singular, e.g. ``strategy``.
        entry: the name.

    Returns:
        The part of a record. The digest is of the top-level packages, or single modules, that plugin and factory are
        defined in; of a plugin that was registered as an object, of the files of their modules; of a plugin of one
        file, which has no version, and of a benchmark's file, of its bytes.
    """
    from importlib.metadata import PackageNotFoundError, version

    if isinstance(entry.factory, BenchmarkFile):
        sha256 = file_digest(entry.factory.path)
    elif entry.plugin in registry.manager.files:
        _, sha256 = registry.manager.files[entry.plugin]
    else:
        sha256 = _source_digest(dict(_sources(registry, entry)))
    found = CodeRecord(kind=kind, name=entry.name, package=entry.package, sha256=sha256)
    with contextlib.suppress(PackageNotFoundError):
        if registry.is_installed(entry.plugin):
            return found.model_copy(update={"version": version(entry.package)})
    return found


def file_digest(path: Path) -> str | None:
    """SHA-256 of a file; ``None`` where it cannot be read."""
    try:
        return hashlib.sha256(read_file(path.resolve())).hexdigest()
    except OSError:
        return None


def modules_of(registry: Registry, entry: Entry[Any]) -> frozenset[str]:
    """Names of the modules of a plugin itself, and of whatever its factory is made of or refers to; none of core."""
    plugin, factory = registry.manager.get_plugin(entry.plugin), entry.factory
    own = getattr(plugin, "__module__", None) or getattr(plugin, "__name__", None)  # an object's, or a module's
    names = [own or "builtins", type(factory).__module__]
    parts = () if isinstance(factory, MethodFactory) else ("build", "cost", "compute")
    for part in (factory, *(getattr(factory, name, None) for name in parts)):
        reference = getattr(part, "target", None) or getattr(part, "reference", None)
        names.append(reference if isinstance(reference, str) else getattr(part, "__module__", None) or "builtins")
    modules = {name.partition(":")[0] for name in names}
    return frozenset(name for name in modules if name.partition(".")[0] not in _NOT_OF_PLUGINS)


def _sources(registry: Registry, entry: Entry[Any]) -> Iterator[tuple[str, Path]]:
    """Files of Python that an entry's code lies in, with the names by which they are told apart."""
    modules = modules_of(registry, entry)
    if not registry.is_installed(entry.plugin):
        files = {name: getattr(sys.modules.get(name), "__file__", None) for name in modules}
        yield from ((name, Path(file)) for name, file in files.items() if file)
        return
    for top in {name.partition(".")[0] for name in modules}:
        try:
            spec = find_spec(top)
        except (ImportError, ValueError):  # of a module that was made by hand
            continue
        for folder in map(Path, (spec and spec.submodule_search_locations) or ()):
            for path in folder.rglob("*.py"):
                name = path.relative_to(folder)
                # Nothing is imported from a folder with a dot, such as Jupyter's copies of what was edited.
                if not any(part.startswith(".") for part in name.parts):
                    yield f"{top}/{name.as_posix()}", path
        if spec and spec.origin and not spec.submodule_search_locations:
            yield top, Path(spec.origin)


def _source_digest(files: dict[str, Path]) -> str | None:
    """SHA-256 of names and bytes of files; ``None`` where there is none, or one cannot be read."""
    digest = hashlib.sha256()
    try:
        for name, path in sorted(files.items()):
            content = path.read_bytes()
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
    except OSError:
        return None
    if not files or any(path.suffix != ".py" for path in files.values()):
        return None
    place, found = min(map(str, files.values())), digest.hexdigest()
    if _FIRST_SEEN.setdefault(place, found) != found:
        warnings.warn(
            f"the source of {' and '.join(sorted(files)[:3])} was edited while this process ran: unless it was "
            "reloaded, runs compute with what was imported before, and records name what lies there now",
            RuntimeWarning,
            stacklevel=2,
        )
    return found


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
    from seu_bench.config.options import did_you_mean

    for plugin, fault in registry.faults.items():
        if name in (plugin, registry.manager.package(plugin)):
            raise fault
    everything = [
        Subject(kind.singular, entry, frozenset(name.partition(".")[0] for name in modules_of(registry, entry)))
        for kind in registry.kinds.values()
        for entry in kind.values()
    ]
    for attribute in ("name", "plugin", "package"):
        if found := [subject for subject in everything if getattr(subject.entry, attribute) == name]:
            return found
    for kind in registry.kinds.values():
        if name in kind.unavailable:
            kind.find(name)  # says what is missing
    plugins = {plugin for owner in registry.manager.owners() for plugin in (owner, registry.manager.package(owner))}
    known = {word for subject in everything for word in (subject.entry.name, subject.entry.plugin)} | plugins
    what = f"nothing that is installed is called {name!r}{did_you_mean(name, sorted(known))}"
    if name in plugins:
        what = f"the plugin {name!r} registers nothing that can be checked"
    raise UnknownNameError(
        what + faults_told(registry.faults),
        remedy=f"name what a plugin registers (seu-bench list), or one of the plugins: {', '.join(sorted(plugins))}",
    )
