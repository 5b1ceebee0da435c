"""Consoles of rich for who watches a computation: what cannot be written is dropped, and nothing is stopped by it."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, TextIO, cast

if TYPE_CHECKING:
    from rich.console import Console


class _TolerantStream(io.TextIOBase):
    """The stream of :func:`tolerant`."""

    def __init__(self, find: Callable[[], TextIO | None]) -> None:
        self._find = find

    @property
    def _stream(self) -> TextIO | None:
        stream = self._find()
        # While bars are drawn, rich puts a stream of its own there, which prints by the console that writes here.
        return getattr(stream, "rich_proxied_file", stream)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """That of the stream."""
        return getattr(self._stream, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._stream is not None and self._stream.isatty()

    def fileno(self) -> int:
        """The descriptor, where the stream has one."""
        if self._stream is None:
            raise io.UnsupportedOperation("fileno")
        return self._stream.fileno()

    def write(self, text: str) -> int:
        """Write text, or drop it."""
        with contextlib.suppress(OSError, ValueError):  # closed files raise ValueError
            if self._stream is not None:
                self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Write what is buffered, or leave it."""
        with contextlib.suppress(OSError, ValueError):
            if self._stream is not None:
                self._stream.flush()


def tolerant(find: Callable[[], TextIO | None]) -> IO[str]:
    """Return a stream that drops what cannot be written.

    A full disk, a closed pipe or a terminal that is gone says nothing about the computation. rich itself ends the
    process where a pipe was closed.

    Args:
        find: returns the stream to write to, at each call; None if there is none.

    Example:
        ``print("task 1 of 5", file=tolerant(lambda: sys.stderr))``
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
