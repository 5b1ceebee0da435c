"""Start-up of the command: Avalanche without wandb and torchmetrics; threads that wait without computing."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any, Final

#: Modules that Avalanche imports for one metric or logger each, which take a second together.
_RARELY_USED: Final = ("wandb", "torchmetrics", "torchmetrics.functional")


def defer_imports() -> None:
    """Import Avalanche from now on without what it rarely needs, which its modules import when they use it.

    It is for programs, once, at their beginning; other modules import the same packages as ever.
    """
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def wait_passively() -> None:
    """Have threads that wait for one another leave their core to others, unless ``OMP_WAIT_POLICY`` says otherwise.

    By default they try again and again, which on a busy machine makes two threads many times slower than one. Call it
    before torch is imported; processes that begin later do the same.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


@contextlib.contextmanager
def collection_paused() -> Iterator[Callable[[], None]]:
    """Pause the collection of cyclic garbage, which goes through all objects often while modules are imported.

    Yields:
        Ends the pause before the ``with`` block does.
    """
    resume = gc.enable if gc.isenabled() else lambda: None
    gc.disable()
    try:
        yield resume
    finally:
        resume()


class _Finder(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, _: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if name == "avalanche" else None
        if spec is not None and spec.origin is not None:
            spec.loader = _AvalancheLoader(name, spec.origin)
        return spec


class _AvalancheLoader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        """Import Avalanche, to which the rarely used modules are stand-ins, which nobody else sees."""
        stand_ins = {name: _StandIn(name) for name in _RARELY_USED if name not in sys.modules}
        sys.modules.update(stand_ins)
        try:
            super().exec_module(module)
        finally:
            for name in stand_ins:
                sys.modules.pop(name, None)


class _StandIn(ModuleType):
    """Module whose functions import it when they are called."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is not self:
            return getattr(importlib.import_module(self.__name__), name)
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*args: Any, **kwargs: Any) -> Any:
            return getattr(importlib.import_module(self.__name__), name)(*args, **kwargs)

        return call
