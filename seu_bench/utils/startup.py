"""Avalanche imported without wandb and torchmetrics, which takes a second less."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any, Final

#: Modules that Avalanche imports for one metric or logger each.
_RARELY_USED: Final = ("wandb", "torchmetrics", "torchmetrics.functional")


def defer_imports() -> None:
    """Import Avalanche from now on without what it rarely needs, which its modules import when they use it.

    It is for programs, once, at their beginning; other modules import the same packages as ever.
    """
    sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, _: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if name == "avalanche" else None
        if spec is not None and spec.origin is not None:
            spec.loader = _AvalancheLoader(name, spec.origin)
        return spec


class _AvalancheLoader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        stand_ins = {name: _StandIn(name) for name in _RARELY_USED if name not in sys.modules}
        sys.modules.update(stand_ins)
        try:
            super().exec_module(module)
        finally:
            for name in stand_ins:
                sys.modules.pop(name, None)  # nobody else sees them


class _StandIn(ModuleType):
    """Module that is imported when it, or a function taken from it, is used."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is not self:
            return getattr(importlib.import_module(self.__name__), name)
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*given: Any, **named: Any) -> Any:
            return getattr(importlib.import_module(self.__name__), name)(*given, **named)

        return call
