"""Methods: of installed packages, of files of Python, and classes that Python has already.

Of an installed one, what ``list`` shows is read without importing it.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.util
import inspect
import os
import pkgutil
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from seu_bench.errors import PluginError
from seu_bench.utils.files import make_folder, write_atomic
from seu_bench.utils.reading import absolute, read_file

if TYPE_CHECKING:
    from seu_bench.training.method import Method

#: The group of entry points of methods: ``name = package.module:Class``.
GROUP: Final = "seu_bench.methods"
#: Environment variable with files and folders of plugins, divided as in ``PATH``; ``--plugin`` adds to it, so that
#: processes of a run or a sweep have them, too.
PLUGINS: Final = "SEU_BENCH_PLUGINS"
#: Methods that this process was given as classes, by their names.
CLASSES: Final[dict[str, type[Method]]] = {}
#: What a factory of a strategy is asked for, and the class has by another name or by the same.
_OF_CLASS: Final = {"options": "Options", "cost": "forecast"} | {
    name: name
    for name in (
        "build",
        "check_options",
        "components",
        "fixed_parameters",
        "inputs",
        "learns_online",
        "needs_validation",
        "presets",
        "reference",
        "trains_encoder",
        "uses_encoder",
    )
}

#: What a class states of itself, and passes on to no other: a method that inherits from it is not of this name.
_TEXTS: Final = ("title", "citation")

_LOADED: Final[dict[Path, PluginFile]] = {}
_IMPORTING: Final[list[Path]] = []


class MethodFactory:
    """Factory of a method, a class or ``package.module:Class``, which is imported for more than its summary."""

    reference_components: Mapping[str, str] = {}

    def __init__(self, method: str | type[Method]) -> None:
        if isinstance(method, str):
            self.target = method
        else:
            self.target = f"{method.__module__}:{method.__qualname__}"
            self.method = method

    def __getattr__(self, name: str) -> Any:
        """What the class says: its options, scenarios, presets, cost, ..."""
        if name == "scenarios":
            return tuple(self.method.scenarios)
        if name in _TEXTS:
            return self._texts.get(name, "")
        if name in _OF_CLASS:
            return getattr(self.method, _OF_CLASS[name])
        raise AttributeError(name)

    @cached_property
    def method(self) -> type[Method]:
        """The class; a PluginError where it cannot be imported, or is no method."""
        from seu_bench.training.method import Method

        try:
            found = pkgutil.resolve_name(self.target)
        except (Exception, SystemExit) as error:
            what = f"the method {self.target} cannot be imported: {type(error).__name__}: {error}"
            raise PluginError(what, where=self.target, remedy="repair it, or uninstall its package") from error
        if not (isinstance(found, type) and issubclass(found, Method)):
            raise PluginError(f"{self.target} is no class of seu_bench.Method", where=self.target)
        return found

    @property
    def summary(self) -> str:
        """First line of the docstring, without its full stop."""
        text = self._texts.get("__doc__", "")
        return text.strip().split("\n\n")[0].replace("\n", " ").strip().removesuffix(".")

    @cached_property
    def _texts(self) -> Mapping[str, str]:
        if "method" not in vars(self):
            return _read_texts(self.target)
        return {name: text for name, text in vars(self.method).items() if isinstance(text, str)}


def methods_in(module: ModuleType) -> list[type[Method]]:
    """Return the methods with a name that a module defines, in their order."""
    from seu_bench.training.method import Method

    found = (value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Method))
    return [method for method in dict.fromkeys(found) if method.name and method.__module__ == module.__name__]


def _read_texts(target: str) -> dict[str, str]:
    """The docstring of a class and its attributes that are plain texts, read from the source of its module; nothing
    where there is no source."""
    module, _, name = target.partition(":")
    try:
        spec = importlib.util.find_spec(module)
        source = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
        body: Sequence[ast.stmt] = ast.parse(source).body
    except (ImportError, OSError, SyntaxError, ValueError):
        return {}
    texts = {}
    for node in (node for node in body if isinstance(node, ast.ClassDef) and node.name == name):
        texts["__doc__"] = ast.get_docstring(node) or ""
        for statement in node.body:
            match statement:
                case ast.Assign([ast.Name(key)], ast.Constant(str(text))) | ast.AnnAssign(
                    ast.Name(key), _, ast.Constant(str(text))
                ):
                    texts[key] = text
    return texts


# ---------------------------------------------------------------------- files


class CallFromPluginError(BaseException):
    """A script that is imported as a plugin has come to its first call of seu-bench, where its import ends."""


class PluginFile(NamedTuple):
    """A file that was imported; ``sha256`` is of the bytes that were."""

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
    """Import a file, by its absolute path; once, unless it was edited since.

    A script is imported up to its first call of ``run``, ``sweep`` or ``tune``: a job of a sweep must not sweep again.

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
            _LOADED[path] = PluginFile(sha256, module)
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


# ---------------------------------------------------------------------- source of classes


def source_file(method: type[Method]) -> Path | None:
    """Return the file in which a class is written; ``None``: in a notebook or an interpreter."""
    functions = (inspect.unwrap(value) for value in vars(method).values() if inspect.isfunction(value))
    places = [it.__code__.co_filename for it in functions if it.__module__ == method.__module__]
    module = sys.modules.get(method.__module__)
    path = absolute(places[0] if places else getattr(module, "__file__", None) or "")
    return path if path.is_file() else None


def source_digest(method: type[Method]) -> str | None:
    """Return SHA-256 of the file of a class, or of what it needs of a notebook; ``None``: the source is not known."""
    path = source_file(method)
    source = path.read_bytes() if path is not None else _notebook_source(method)
    return hashlib.sha256(source).hexdigest() if source else None


def importable_file(method: type[Method], folder: Path) -> Path:
    """Return a file of which other processes can import a class, or raise a PluginError.

    What it needs of a notebook is written into a folder.
    """
    path = source_file(method)
    if path is None and (source := _notebook_source(method)):
        path = absolute(folder / f"{method.name}-{hashlib.sha256(source).hexdigest()[:10]}.py")
        make_folder(path.parent)
        write_atomic(path, source)
    if path is None:
        raise PluginError(
            f"the source of {method.__name__} is not known, and jobs of a sweep run in other processes",
            remedy="write the class into a file, in a notebook by %%writefile mine.py, and give plugin='mine.py'",
        )
    if method.name not in {other.name for other in methods_in(load_file(path).module)}:
        raise PluginError(
            f"{path.name} does not define {method.name!r} when it is imported",
            where=str(path),
            remedy="define the class before the first call of seu_bench, and outside of functions and of __main__",
        )
    return path


def _notebook_source(method: type[Method]) -> bytes:
    """The statements of a notebook's cells that a class needs, in the order in which they were run."""
    name = method.__qualname__
    statements: list[ast.stmt] = []
    binding: dict[str, ast.stmt] = {}
    for cell in getattr(sys.modules.get(method.__module__), "In", ()):
        with contextlib.suppress(SyntaxError):
            for statement in ast.parse(cell).body:
                statements.append(statement)
                binding |= dict.fromkeys(_bound(statement), statement)
    if name not in binding:
        return b""
    kept: set[ast.stmt] = set()
    wanted = {name, "annotations"} & binding.keys()  # the latter of __future__
    while wanted:
        statement = binding[wanted.pop()]
        if statement not in kept:
            kept.add(statement)
            nodes = list(ast.walk(statement))
            local = {node.arg for node in nodes if isinstance(node, ast.arg)} | _names(nodes, ast.Store)
            wanted |= (_names(nodes, ast.Load) - local) & binding.keys()
    return ("\n\n".join(ast.unparse(statement) for statement in statements if statement in kept) + "\n").encode()


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
