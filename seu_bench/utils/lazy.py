"""Names of a package that are imported when they are first asked for: its table of contents costs nothing."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any


def attach(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a module's ``__getattr__`` and ``__dir__`` (PEP 562) that import each public name on first access.

    ``dir`` has the public names, the modules inside the package, imported or not, and what every module has, such as
    ``__doc__``; so completion and ``help`` show them. A module inside is imported when it is asked for, too.

    A package lists each one in ``__all__`` and imports it under ``TYPE_CHECKING`` from the module that defines it. That
    import, read from the package's source, says where the name comes from.

    Args:
        package: full name of the package, ``__name__``.

    Returns:
        What to assign to ``__getattr__`` and ``__dir__``.

    Example:
        ``__getattr__, __dir__ = attach(__name__)``
    """
    modules = functools.cache(_modules)

    def load(name: str) -> Any:
        if name in public() and name in modules(package):
            return getattr(importlib.import_module(modules(package)[name], package), name)
        reason = ""
        # Python itself asks for names such as __path__, and for submodules only when it imports them anyway.
        if not name.startswith("_") and name in _submodules(package):
            try:
                return importlib.import_module(f"{package}.{name}")
            except ImportError as error:  # whoever lists or completes names goes on with the next one
                reason = f": {error}"
        raise AttributeError(f"module {package!r} has no attribute {name!r}{reason}")

    def public() -> list[str]:
        return list(sys.modules[package].__all__)

    def names() -> list[str]:
        own = {name for name in vars(sys.modules[package]) if name.startswith("__")}
        return sorted(own | {*public(), *_submodules(package)})

    return load, names


def _submodules(package: str) -> set[str]:
    """Names of the modules and packages inside a package but for private ones; none is imported."""
    import pkgutil

    found = pkgutil.iter_modules(sys.modules[package].__path__)
    return {module.name for module in found if not module.name.startswith("_")}


def _modules(package: str) -> dict[str, str]:
    """Module of each name that a package imports under ``TYPE_CHECKING``, as it is written there."""
    import ast  # here, as many programs need no name of any room

    spec = sys.modules[package].__spec__
    source = getattr(spec and spec.loader, "get_source", lambda _: None)(package)
    if source is None:
        raise ImportError(f"the public names of {package} cannot be resolved: its source, __init__.py, is missing")
    blocks = [node.body for node in ast.parse(source).body if isinstance(node, ast.If)]
    imports = [node for block in blocks for node in block if isinstance(node, ast.ImportFrom)]
    return {alias.name: "." * node.level + (node.module or "") for node in imports for alias in node.names}
