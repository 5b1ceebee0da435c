"""Commands of ``seu-bench`` that plugins bring. Light: ``seu-bench --help`` imports it."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import click


class CommandFactory(Protocol):
    """A command of ``seu-bench``.

    Attributes:
        summary: one line for ``seu-bench --help``.
    """

    @property
    def summary(self) -> str: ...

    def build(self) -> click.Command:
        """Return the command; called when the command runs or its help is shown."""


@dataclass(frozen=True)
class LazyCommand:
    """A command that is imported when it runs or its help is shown.

    Args:
        target: the :class:`click.Command`, as ``package.module:name``.
        summary: one line for ``seu-bench --help``, which then does not import the command.

    Example:
        ``register("latex", LazyCommand("my_package.latex:latex", "print a leaderboard as LaTeX"))``
    """

    target: str
    summary: str = ""

    def build(self) -> click.Command:
        """Import the command.

        Raises:
            TypeError: the target is not a click command.
        """
        import click

        module, _, name = self.target.partition(":")
        command = getattr(importlib.import_module(module), name)
        if not isinstance(command, click.Command):
            raise TypeError(f"{self.target} is not a click command")
        return command
