"""Factories of plugins whose dependencies may be missing; nothing is imported to find out."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Protocol, TypeVar

Factory = TypeVar("Factory")


def offered(factory: Factory, extra: str, *modules: str) -> Factory | Unavailable:
    """``factory`` where what it needs is installed, and otherwise what to do about it.

    Args:
        extra: the optional dependencies of seu-bench that bring it.
        modules: the packages that it imports, by import name.
    """
    missing = [name for name in modules if not _is_installed(name)]
    if not missing:
        return factory
    return Unavailable(f"not installed: {', '.join(missing)}", f"pip install 'seu-bench[{extra}]'")


def _is_installed(name: str) -> bool:
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin is not None  # a folder of that name in the working folder has no origin


Factory_contra = TypeVar("Factory_contra", contravariant=True)


class Register(Protocol[Factory_contra]):
    """What a registering hook is given."""

    def __call__(self, name: str, factory: Factory_contra | Unavailable) -> None:
        """Offer ``factory`` under ``name``, or say why it is not there."""


@dataclass(frozen=True)
class Unavailable:
    """Registered in place of a factory: why this name cannot be used. ``list`` tells it, and so does asking for it.

    Attributes:
        remedy: what to do about it; empty: choose another name.
    """

    reason: str
    remedy: str = ""
