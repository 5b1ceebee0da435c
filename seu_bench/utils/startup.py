"""Start-up of a program: packages of others import only what is asked of them; threads wait without computing.

``import avalanche.core`` runs ``avalanche/__init__.py`` first, which imports every benchmark, model, metric and logger
of Avalanche, and with them wandb, torchmetrics, SciPy, scikit-learn and torch's compiler: twice what torch itself
takes, and a run needs little of it. In the process of the command ``seu-bench`` such packages get their names as PEP
562 has it: a name is imported from the module that defines it, when it is asked for. All names are there, and they are
the same objects; nothing of these packages is changed.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

#: Packages whose ``__init__`` imports their own modules for the sake of names: which of the names wait, ``None``: all.
#: torchvision's other names load its compiled operations and tell torch's compiler about them.
COLLECTIONS: Final[Mapping[str, frozenset[str] | None]] = {
    "avalanche": None,
    "avalanche.benchmarks": None,
    "avalanche.evaluation": None,
    "avalanche.evaluation.metrics": None,
    "avalanche.logging": None,
    "avalanche.models": None,
    "avalanche.training": None,
    "avalanche.training.plugins": None,
    "avalanche.training.supervised": None,
    "torchvision": frozenset({"datasets", "io", "models", "ops", "utils"}),
}
_STAR: Final = "*"


def defer_imports(packages: Mapping[str, frozenset[str] | None] = COLLECTIONS) -> None:
    """Import packages from now on without the modules that they collect names from.

    Packages that are imported already stay as they are. It is for programs, once, at their beginning: a library must
    not decide how the process that it is part of imports others.

    Args:
        packages: full name of each, a folder with an ``__init__.py``, and which names wait; ``None``: all that it
            imports from its own modules.

    Example:
        ``defer_imports(); from avalanche.core import SupervisedPlugin``
    """
    if not any(isinstance(finder, _Finder) and finder.packages == packages for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(packages))


def wait_passively() -> None:
    """Have threads that wait for one another leave their core to others, unless ``OMP_WAIT_POLICY`` says otherwise.

    By default they try again and again for a while, which is faster by a tenth on an idle machine. On a busy one the
    thread that is waited for does not come to compute, and two threads are many times slower than one. Call it before
    torch is imported; processes that begin later do the same.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


@contextlib.contextmanager
def collection_paused() -> Iterator[Callable[[], None]]:
    """Pause the collection of cyclic garbage, which goes through all objects often while modules are imported.

    Yields:
        Ends the pause before the ``with`` block does.

    Example:
        ``with collection_paused(): import avalanche``
    """
    if not gc.isenabled():
        yield lambda: None
        return
    gc.disable()
    try:
        yield gc.enable
    finally:
        gc.enable()


class _Finder(MetaPathFinder):
    def __init__(self, packages: Mapping[str, frozenset[str] | None]) -> None:
        self.packages = packages

    def find_spec(self, name: str, path: Sequence[str] | None, _: ModuleType | None = None) -> ModuleSpec | None:
        if name not in self.packages:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader, self.packages[name])
        return spec


class _Loader(SourceFileLoader):
    """Runs an ``__init__`` but for the imports that wait."""

    def __init__(self, loader: SourceFileLoader, waiting: frozenset[str] | None) -> None:
        super().__init__(loader.name, loader.path)
        self._waiting = waiting

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Package(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Run what :meth:`get_code` returns."""
        module.__dict__["_deferred"] = _Deferred(module.__name__, Path(self.path).parent, self._parts()[1])
        super().exec_module(module)

    def get_code(self, fullname: str) -> CodeType:
        """Compile the statements that are run at once; what Python has kept compiled are all of them."""
        return self.source_to_code(ast.Module(self._parts()[0], []), self.path)

    def _parts(self) -> tuple[list[ast.stmt], list[ast.ImportFrom]]:
        """The package's statements, and imports from its own modules that wait."""
        now: list[ast.stmt] = []
        later: list[ast.ImportFrom] = []
        for statement in ast.parse(self.get_data(self.path), self.path).body:
            own = _own_imports([statement], self.name)
            if not own:
                now.append(statement)
            for one in own:
                waiting = [it for it in one.names if self._waiting is None or it.name in self._waiting]
                others = [it for it in one.names if it not in waiting]
                now += [_of(one, others)] if others else []
                later += [_of(one, waiting)] if waiting else []
        return now, later


class _Package(ModuleType):
    def __getattr__(self, name: str) -> Any:
        deferred: _Deferred | None = self.__dict__.get("_deferred")
        # Python and others ask every module for names such as __warningregistry__; a star import asks for __all__.
        if deferred is not None and (name == "__all__" or not name.startswith("__")):
            deferred.find(name, self.__dict__)
        if name in self.__dict__:
            return self.__dict__[name]
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        if (deferred := self.__dict__.get("_deferred")) is not None:
            deferred.complete(self.__dict__)
        return list(self.__dict__)


class _Deferred:
    """The imports of a package that wait."""

    def __init__(self, package: str, folder: Path, imports: Sequence[ast.ImportFrom]) -> None:
        self._package = package
        self._folder = folder
        self._imports = imports
        self._sources: dict[Path, str | None] = {}
        self._is_complete = False
        self._lock = threading.RLock()

    def find(self, name: str, names: dict[str, Any]) -> None:
        """Import one name into the package, or all if no module of it is seen to define it."""
        with self._lock:
            # The last import of a name is the one that holds.
            homes = [] if self._is_complete else list(reversed(self._imports))
            is_from_module = any(name in _named(it) for it in homes if _inner(it, self._package))
            if self._is_module(name) and not is_from_module:
                # Python says why it cannot be imported: ``from package import module`` asks here first.
                with contextlib.suppress(ImportError):
                    names.setdefault(name, importlib.import_module(f"{self._package}.{name}"))
                return
            for statement in homes:
                if name not in names and self._brings(statement, self._package, self._folder, name):
                    # If it was seen wrongly, all imports together bring the name, or tell why not.
                    with contextlib.suppress(ImportError, AttributeError):
                        self._import(statement, names, only=name)
            if name not in names:
                self.complete(names)

    def complete(self, names: dict[str, Any]) -> None:
        """Import everything, as the package's author wrote it."""
        with self._lock:
            if not self._is_complete:
                self._is_complete = True
                try:
                    for statement in self._imports:
                        self._import(statement, names)
                except BaseException:  # whoever asks next is told the same, as of any import that failed
                    self._is_complete = False
                    raise
                self._sources.clear()

    def _import(self, statement: ast.ImportFrom, names: dict[str, Any], only: str | None = None) -> None:
        """Carry an import out, of all its names or of one, as the statement does."""
        inner = _inner(statement, self._package)
        home = importlib.import_module(f"{self._package}.{inner}") if inner else None
        pairs = {alias.asname or alias.name: alias.name for alias in statement.names}
        if home is not None and _STAR in pairs:
            pairs = {name: name for name in _public(home)}
        for name in pairs if only is None else [only]:
            module = f"{self._package}.{pairs[name]}"
            names[name] = importlib.import_module(module) if home is None else getattr(home, pairs[name])

    def _brings(self, statement: ast.ImportFrom, package: str, folder: Path, name: str) -> bool:
        """Whether an import is seen to bring a name into a package."""
        if statement.names[0].name != _STAR:
            return name in _named(statement)
        inner = _inner(statement, package)
        return not name.startswith("_") and self._defines(
            f"{package}.{inner}", folder.joinpath(*inner.split(".")), name
        )

    def _defines(self, module: str, path: Path, name: str) -> bool:
        """Whether the source of a module is seen to define a public name, or that of a package to import it."""
        source = self._source(path.with_suffix(".py"))
        if source is not None:
            listed = re.search(r"^__all__\b(.*)", source, re.MULTILINE | re.DOTALL)
            defined = re.search(rf"^(?:(?:class|def)\s+{name}\b|{name}\s*[:=])", source, re.MULTILINE)
            return defined is not None and (listed is None or re.search(rf"[\"']{name}[\"']", listed[1]) is not None)
        source = self._source(path / "__init__.py")
        own = [] if source is None else _own_imports(ast.parse(source).body, module)
        return any(self._brings(statement, module, path, name) for statement in own)

    def _is_module(self, name: str) -> bool:
        return (self._folder / f"{name}.py").is_file() or (self._folder / name / "__init__.py").is_file()

    def _source(self, path: Path) -> str | None:
        if path not in self._sources:
            self._sources[path] = path.read_text(encoding="utf-8") if path.is_file() else None
        return self._sources[path]


def _own_imports(statements: Iterable[ast.stmt], package: str) -> list[ast.ImportFrom]:
    """Statements that import names from a package's own modules, of those of its ``__init__``."""
    found = [it for it in statements if isinstance(it, ast.ImportFrom) and it.level < 2]
    return [it for it in found if it.level or f"{it.module}.".startswith(f"{package}.")]


def _inner(statement: ast.ImportFrom, package: str) -> str:
    """Module inside the package that a statement imports from; empty: from the package itself, which is a module."""
    inner = statement.module or ""
    return inner if statement.level else inner.removeprefix(package).removeprefix(".")


def _named(statement: ast.ImportFrom) -> set[str]:
    """Names that an import binds, a star for all."""
    return {alias.asname or alias.name for alias in statement.names}


def _of(statement: ast.ImportFrom, names: list[ast.alias]) -> ast.ImportFrom:
    """The same import, of other names."""
    other = ast.ImportFrom(statement.module, names, statement.level)
    return ast.fix_missing_locations(ast.copy_location(other, statement))


def _public(module: ModuleType) -> list[str]:
    """Names that a star import takes."""
    listed = getattr(module, "__all__", None)
    return list(listed) if listed is not None else [name for name in dir(module) if not name.startswith("_")]
