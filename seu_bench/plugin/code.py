"""Whose code a registered name stands for: its package, and a digest of its source. What it builds is not imported."""

from __future__ import annotations

import contextlib
import hashlib
import sys
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from seu_bench.config.benchmark_file import BenchmarkFile
from seu_bench.plugin.entries import Entry
from seu_bench.plugin.methods import MethodFactory
from seu_bench.plugin.registry import Registry
from seu_bench.results.record_parts import CodeRecord
from seu_bench.utils.reading import read_file

#: Top-level packages that are nobody's plugin.
_NOT_OF_PLUGINS: Final = frozenset({"seu_bench", *sys.stdlib_module_names})
#: Digests as this process saw them first, by the first file of each.
_FIRST_SEEN: Final[dict[str, str]] = {}


def describe_code(registry: Registry, kind: str, entry: Entry[Any]) -> CodeRecord:
    """Describe the code of a registered name, as it lies on disk now.

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
            # Nothing is imported from a folder with a dot, such as Jupyter's copies of what was edited.
            found = ((path.relative_to(folder), path) for path in folder.rglob("*.py"))
            yield from (
                (f"{top}/{name.as_posix()}", path)
                for name, path in found
                if not any(part.startswith(".") for part in name.parts)
            )
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
