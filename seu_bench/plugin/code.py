"""The code behind registered names: its package, a digest of its source, and what ``check-plugin`` takes."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

from seu_bench.config.benchmark import BenchmarkFile
from seu_bench.config.options import did_you_mean
from seu_bench.errors import UnknownNameError
from seu_bench.plugin.methods import MethodFactory
from seu_bench.plugin.registry import Entry, Registry, faults_told
from seu_bench.results.record import CodeRecord
from seu_bench.utils.reading import read_file

#: Top-level packages that are nobody's plugin.
_NOT_OF_PLUGINS: Final = frozenset({"seu_bench", *sys.stdlib_module_names})


def describe_code(registry: Registry, kind: str, entry: Entry[Any]) -> CodeRecord:
    """Describe the code of a registered name of a kind, such as ``strategy``. What it builds is not imported.

    The digest is of the top-level packages, or single modules, that plugin and factory are defined in, as this process
    saw them first; of a plugin that was registered as an object, of the files of their modules; of a plugin of one
    file, which has no version, and of a benchmark's file, of its bytes.
    """
    manager = registry.manager
    if isinstance(entry.factory, BenchmarkFile):
        sha256 = file_digest(entry.factory.path)
    elif entry.plugin in manager.files:
        _, sha256 = manager.files[entry.plugin]
    else:
        modules = modules_of(registry, entry)
        is_installed = entry.plugin in manager.packages
        places = {_place(name.partition(".")[0]) for name in modules} if is_installed else set(map(_file, modules))
        sha256 = _source_digest(tuple(sorted(filter(None, places))))
    found = CodeRecord(kind=kind, name=entry.name, package=entry.package, sha256=sha256)
    with contextlib.suppress(PackageNotFoundError):
        if entry.plugin in manager.packages:
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
        names.append(getattr(part, "target", None) or getattr(part, "__module__", None) or "builtins")
    modules = {name.partition(":")[0] for name in names}
    return frozenset(name for name in modules if name.partition(".")[0] not in _NOT_OF_PLUGINS)


def _file(module: str) -> str | None:
    return getattr(sys.modules.get(module), "__file__", None)


def _place(top: str) -> str | None:
    """The folder of a package, or the file of a single module."""
    with contextlib.suppress(ImportError, ValueError):  # the latter of a module that was made by hand
        if spec := find_spec(top):
            return next(iter(spec.submodule_search_locations or ()), spec.origin)
    return None


@functools.cache  # Python computes with what it imported, whatever is edited afterwards
def _source_digest(places: tuple[str, ...]) -> str | None:
    """SHA-256 of names and bytes of Python's files; ``None`` where there is none, or one cannot be read."""
    digest, found = hashlib.sha256(), False
    try:
        for place in map(Path, places):
            for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
                name = path.relative_to(place.parent)
                # Nothing is imported from a folder with a dot, such as Jupyter's copies of what was edited.
                if not any(part.startswith(".") for part in name.parts):
                    content, found = path.read_bytes(), True
                    digest.update(f"{name.as_posix()}\0{len(content)}\0".encode() + content)
    except OSError:
        return None
    return digest.hexdigest() if found else None


class Subject(NamedTuple):
    """A registered name of a kind, e.g. ``data set``, to run a contract on."""

    kind: str
    entry: Entry[Any]

    def __str__(self) -> str:
        return f"{self.kind} {self.entry.name!r} of package {self.entry.package}"


def subjects(registry: Registry, name: str) -> list[Subject]:
    """Return everything that is registered as ``name``, of any kind, or else all that a plugin or package ``name`` has.

    Raises:
        SeuBenchError: there is neither, it cannot be used, or it offers nothing.
    """
    kinds = registry.kinds.values()
    for plugin, fault in registry.faults.items():
        if name in (plugin, registry.manager.package(plugin)):
            raise fault
    everything = [Subject(kind.singular, entry) for kind in kinds for entry in kind.values()]
    for attribute in ("name", "plugin", "package"):
        if found := [subject for subject in everything if getattr(subject.entry, attribute) == name]:
            return found
    for kind in kinds:
        if name in kind.unavailable:
            kind.find(name)  # says what is missing
    known = {text for it in everything for text in (it.entry.name, it.entry.plugin, it.entry.package)}
    what = f"nothing that can be checked is called {name!r}{did_you_mean(name, sorted(known))}"
    remedy = "name what a plugin registers (seu-bench list), or a plugin, a package or a file of Python"
    raise UnknownNameError(what + faults_told(registry.faults), remedy=remedy)
