"""Names of a package that are imported when they are first asked for: its table of contents costs nothing."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def attach(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a module ``__getattr__`` (PEP 562) that imports each name from its module on first access.

    Args:
        package: full name of the package, ``__name__``.
        modules: module of each public name, relative to the package.

    Returns:
        The function to assign to ``__getattr__``.

    Example:
        ``__getattr__ = attach(__name__, {"Stage": "stage", "TrainingStage": "training_stage"})``
    """

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{modules[name]}"), name)

    return load
