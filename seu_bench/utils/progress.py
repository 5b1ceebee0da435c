"""Progress of long work: bars on a terminal, removed when the work is done; consoles that cannot fail.

Work reports its progress by :func:`track` or :func:`bar`. The caller decides whether anything is drawn: inside
:func:`show_progress`, where standard error is a terminal.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextvars import ContextVar
from typing import IO, TYPE_CHECKING, Any, Final, TextIO, TypeVar, cast

from seu_bench.utils.text import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

Item = TypeVar("Item")

#: Seconds; work that takes less draws nothing.
DELAY: Final = 0.3


class _TolerantStream:
    """A stream that drops what cannot be written: on a full disk, a closed pipe, a terminal that is gone."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def isatty(self) -> bool:
        with contextlib.suppress(AttributeError, ValueError):  # closed files raise ValueError
            return cast("TextIO", self._stream).isatty()
        return False

    def write(self, text: str) -> int:
        with contextlib.suppress(AttributeError, OSError, ValueError):
            cast("TextIO", self._stream).write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(AttributeError, OSError, ValueError):
            cast("TextIO", self._stream).flush()


def watching_console(name: str = "stderr", width: int | None = None) -> Console:
    """Return a console on ``stdout`` or ``stderr`` that cannot fail; rich itself ends the process with a closed pipe.

    ``width`` is in characters, where it is no terminal.
    """
    from rich.console import Console

    stream = cast("IO[str]", _TolerantStream(getattr(sys, name)))
    console = Console(file=stream)
    return console if console.is_terminal else Console(file=stream, width=width)


_DISPLAY: ContextVar[Progress | None] = ContextVar("seu_bench_progress", default=None)


@contextlib.contextmanager
def show_progress(console: Console | None = None) -> Iterator[None]:
    """Draw bars of work inside, if the console, standard error by default, is a terminal."""
    with contextlib.ExitStack() as stack:
        display = None
        if console is not None or (sys.stderr is not None and sys.stderr.isatty()):
            display = _new_progress(console or watching_console())
            stack.callback(display.stop)  # also of work that was abandoned halfway
        stack.callback(_DISPLAY.reset, _DISPLAY.set(display))
        yield


def _new_progress(console: Console) -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        *(TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()),
        console=console,
        transient=True,
        redirect_stdout=False,  # it would be drawn above the bars instead of going where the caller sent it
        redirect_stderr=False,
        disable=not console.is_interactive,
    )


@contextlib.contextmanager
def hide_progress() -> Iterator[None]:
    """Draw no bars of work inside, whatever the caller asked for."""
    token = _DISPLAY.set(None)
    try:
        yield
    finally:
        _DISPLAY.reset(token)


@contextlib.contextmanager
def bar(what: str, total: float | None = None) -> Iterator[Callable[[float], None]]:
    """Draw a bar for a piece of work, described in a word or two, and yield what adds to what is done.

    It is drawn once the work has taken :data:`DELAY`, or at once if nobody knows how much it is (``None``).
    """
    display, began = _DISPLAY.get(), time.monotonic()
    if display is None:
        yield lambda _: None
        return
    task = display.add_task(printable(what), total=total)

    def advance(count: float) -> None:
        display.update(task, advance=count)
        if total is None or time.monotonic() - began > DELAY:
            display.start()

    if total is None:
        advance(0)
    try:
        yield advance
    finally:
        display.remove_task(task)
        if not display.tasks:
            display.stop()


def track(items: Iterable[Item], what: str, total: float | None = None) -> Iterator[Item]:
    """Iterate over ``items`` with a bar that counts those that are done, of ``total``, by default their length."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    with bar(what, total) as advance:
        for item in items:
            yield item
            advance(1)
