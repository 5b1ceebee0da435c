"""Names of a package that are imported when they are first asked for: its table of contents costs nothing."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any


def attach(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a module's ``__getattr__`` and ``__dir__`` (PEP 562) that import each public name on first access.

    A package lists each one in ``__all__`` and imports it under ``TYPE_CHECKING`` from the module that defines it. That
    import, read from the package's source, says where the name comes from.

    Args:
        package: full name of the package, ``__name__``.

    Example:
        ``__getattr__, __dir__ = attach(__name__)``
    """
    homes = functools.cache(_homes)

    def load(name: str) -> Any:
        if name in sys.modules[package].__all__ and name in homes(package):
            return getattr(importlib.import_module(homes(package)[name], package), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load, lambda: sorted({*vars(sys.modules[package]), *sys.modules[package].__all__})


def _homes(package: str) -> dict[str, str]:
    """Module of each name that a package imports under ``TYPE_CHECKING``, as it is written there."""
    import ast  # here, as many programs need no name of any room

    source = getattr(sys.modules[package].__loader__, "get_source", lambda _: None)(package)
    blocks = [node.body for node in ast.parse(source or "").body if isinstance(node, ast.If)]
    imports = [node for block in blocks for node in block if isinstance(node, ast.ImportFrom)]
    return {alias.name: "." * node.level + (node.module or "") for node in imports for alias in node.names}
