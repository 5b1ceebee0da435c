"""Plugins of one file: a file of Python that is imported by its path, or a class that Python has already."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import inspect
import os
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

from seu_bench.errors import PluginError
from seu_bench.plugin.methods import methods_in
from seu_bench.utils.files import make_folder, write_atomic
from seu_bench.utils.reading import absolute, read_file

if TYPE_CHECKING:
    from seu_bench.training.method import Method

#: Environment variable with files and folders of such plugins, divided as in ``PATH``; ``--plugin`` adds to it, so that
#: processes of a run or a sweep have them, too.
PLUGINS: Final = "SEU_BENCH_PLUGINS"
#: Methods that this process was given as classes, by their names.
CLASSES: Final[dict[str, type[Method]]] = {}

_LOADED: Final[dict[Path, PluginFile]] = {}
_IMPORTING: Final[list[Path]] = []


class CallFromPluginError(BaseException):
    """A script that is imported as a plugin has come to its first call of seu-bench, where its import ends."""


@dataclass(frozen=True)
class PluginFile:
    """A file that was imported; ``sha256`` is of the bytes that were."""

    path: Path
    sha256: str
    module: ModuleType


def plugin_files() -> list[Path]:
    """Return the files that :data:`PLUGINS` names, or that lie in its folders; a folder's tests are none."""
    found: list[Path] = []
    for path in map(absolute, filter(None, os.environ.get(PLUGINS, "").split(os.pathsep))):
        inside = sorted(path.glob("*.py")) if path.is_dir() else [path]
        found += [file for file in inside if file == path or not file.name.startswith("test_")]
    return list(dict.fromkeys(found))


def load_file(path: Path) -> PluginFile:
    """Import a file; once, unless it was edited since.

    A script is imported up to its first call of ``run``, ``sweep`` or ``tune``: a job of a sweep must not sweep again.

    Args:
        path: absolute.

    Raises:
        PluginError: it cannot be read or imported; the line is named.
    """
    name = f"seu_bench_file_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    try:
        source = read_file(path.resolve())
        sha256 = hashlib.sha256(source).hexdigest()
        if path not in _LOADED or _LOADED[path].sha256 != sha256:
            module = ModuleType(name)
            module.__file__ = str(path)
            sys.modules[name] = module  # where pydantic and pickle look for it
            _IMPORTING.append(path)
            try:
                with contextlib.suppress(CallFromPluginError):
                    exec(compile(source, str(path), "exec", dont_inherit=True), vars(module))
            finally:
                _IMPORTING.pop()
            _LOADED[path] = PluginFile(path, sha256, module)
    except (Exception, SystemExit) as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = error.lineno if isinstance(error, SyntaxError) else next(reversed(lines), None)
        raise PluginError(
            f"the plugin {path.name} cannot be imported: {type(error).__name__}: {getattr(error, 'msg', error)}",
            where=f"{path}:{line}" if line else str(path),
            remedy="repair the file" if line else "give the path of a file of Python",
        ) from error
    return _LOADED[path]


def end_import() -> None:
    """End the import of the script that calls this, where it is imported as a plugin."""
    if _IMPORTING:
        raise CallFromPluginError


def find_source(method: type[Method]) -> tuple[Path, bytes] | None:
    """Find the file in which a class is written; of one in a notebook, make a file of it and of what it uses.

    Returns:
        Path and content, of a notebook with the path ``<name>-<digest>.py``, which no one has written yet; ``None``:
        the source is not known.
    """
    functions = (inspect.unwrap(value) for value in vars(method).values() if inspect.isfunction(value))
    places = [it.__code__.co_filename for it in functions if it.__module__ == method.__module__]
    module = sys.modules.get(method.__module__)
    path = absolute(places[0] if places else getattr(module, "__file__", None) or "")
    with contextlib.suppress(OSError):
        return path, read_file(path.resolve())
    source = _notebook_source(method.__qualname__, getattr(module, "In", ())).encode()
    digest = hashlib.sha256(source).hexdigest()[:10]
    return (Path(f"{method.name}-{digest}.py"), source) if source else None


def importable_file(method: type[Method], folder: Path) -> Path:
    """Return a file of which other processes can import a class; that of a notebook is written into a folder.

    Raises:
        PluginError: there is none, or importing it does not define the class.
    """
    found = find_source(method)
    if found is None:
        raise PluginError(
            f"the source of {method.__name__} is not known, and jobs of a sweep run in other processes",
            remedy="write the class into a file, in a notebook by %%writefile mine.py, and give plugin='mine.py'",
        )
    path, source = found
    if not path.is_absolute():
        path = absolute(folder / path)
        make_folder(path.parent)
        write_atomic(path, source)
    if method.name not in {other.name for other in methods_in(load_file(path).module)}:
        raise PluginError(
            f"{path.name} does not define {method.name!r} when it is imported",
            where=str(path),
            remedy="define the class before the first call of seu_bench, and outside of functions and of __main__",
        )
    return path


def _notebook_source(name: str, cells: Iterable[str]) -> str:
    """The statements of a notebook, in the order in which they were run, that a name needs; empty: it is not there."""
    statements: list[ast.stmt] = []
    binding: dict[str, ast.stmt] = {}
    for cell in cells:
        with contextlib.suppress(SyntaxError):
            for statement in ast.parse(cell).body:
                statements.append(statement)
                binding |= dict.fromkeys(_bound(statement), statement)
    if name not in binding:
        return ""
    kept: set[ast.stmt] = set()
    wanted = {name, "annotations"} & binding.keys()  # the latter of __future__
    while wanted:
        statement = binding[wanted.pop()]
        if statement not in kept:
            kept.add(statement)
            nodes = list(ast.walk(statement))
            local = {node.arg for node in nodes if isinstance(node, ast.arg)} | _names(nodes, ast.Store)
            wanted |= (_names(nodes, ast.Load) - local) & binding.keys()
    return "\n\n".join(ast.unparse(statement) for statement in statements if statement in kept) + "\n"


def _bound(statement: ast.stmt) -> set[str]:
    """Names that a statement of a module binds."""
    match statement:
        case ast.Import(names) | ast.ImportFrom(names=names):
            return {alias.asname or alias.name.partition(".")[0] for alias in names}
        case ast.ClassDef(name) | ast.FunctionDef(name):
            return {name}
        case ast.Assign() | ast.AnnAssign():
            return _names(ast.walk(statement), ast.Store)
    return set()


def _names(nodes: Iterable[ast.AST], context: type[ast.expr_context]) -> set[str]:
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, context)}
