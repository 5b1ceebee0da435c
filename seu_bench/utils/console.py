"""Consoles of rich for who watches a computation: what cannot be written is dropped, and nothing is stopped by it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from rich.console import Console


class _TolerantStream:
    """The stream of :func:`tolerant`: writes may fail; all else is asked of the stream behind."""

    def __init__(self, find: Callable[[], TextIO | None]) -> None:
        self._find = find

    def __getattr__(self, name: str) -> Any:
        stream = self._find()
        # While bars are drawn, rich puts a stream of its own there, which prints by the console that writes here.
        return getattr(getattr(stream, "rich_proxied_file", stream), name)

    def isatty(self) -> bool:
        with contextlib.suppress(AttributeError, ValueError):
            return bool(self.__getattr__("isatty")())
        return False

    def write(self, text: str) -> int:
        with contextlib.suppress(AttributeError, OSError, ValueError):  # closed files raise ValueError
            self.__getattr__("write")(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(AttributeError, OSError, ValueError):
            self.__getattr__("flush")()


def tolerant(find: Callable[[], TextIO | None]) -> IO[str]:
    """Return a stream that drops what cannot be written.

    A full disk, a closed pipe or a terminal that is gone says nothing about the computation. rich itself ends the
    process where a pipe was closed.

    Args:
        find: returns the stream to write to, at each call; None if there is none.
    """
    return cast("IO[str]", _TolerantStream(find))


def watching_console(name: str = "stderr", width: int | None = None) -> Console:
    """Return a console on standard error or output that cannot fail.

    Args:
        name: ``stdout`` or ``stderr``.
        width: in characters, where it is no terminal; rich's 80 by default.
    """
    from rich.console import Console

    stream = tolerant(lambda: getattr(sys, name))
    console = Console(file=stream)
    return console if console.is_terminal else Console(file=stream, width=width)
