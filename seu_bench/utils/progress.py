"""Bars for long work that is no run: on a terminal, on standard error, and gone when the work is done.

Work says how far it is by :func:`tracked` or :func:`bar` wherever it is done. Whether anything is drawn is decided by
whoever called: inside :func:`shown`, and where standard error is a terminal. Everywhere else nothing is drawn, so a
library call is silent and a log file stays readable.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Sized
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

Item = TypeVar("Item")

#: Seconds within which nobody needs a bar.
DELAY: Final = 0.3


class Bar:
    """How far a piece of work is."""

    def __init__(self, progress: Progress | None = None, task: TaskID | None = None) -> None:
        self._progress = progress
        self._task = task

    def advance(self, count: float = 1) -> None:
        """So much more is done."""
        if self._progress is not None and self._task is not None:
            self._progress.advance(self._task, count)

    def expect(self, total: float) -> None:
        """So much is to be done in all."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, total=total)


class _Display:
    """The bars of pieces of work that lie in each other, drawn as long as there is one."""

    def __init__(self, console: Console, delay: float) -> None:
        self._console = console
        self._delay = delay
        self._open = 0
        self._lock = threading.Lock()
        self._progress: Progress | None = None
        self._timer: threading.Timer | None = None

    @contextlib.contextmanager
    def bar(self, what: str, total: float | None) -> Iterator[Bar]:
        progress = self._progress or self._begin()
        task = progress.add_task(what, total=total)
        self._open += 1
        try:
            yield Bar(progress, task)
        finally:
            self._open -= 1
            progress.remove_task(task)
            if not self._open:
                self.close()

    def _begin(self) -> Progress:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        # What is printed meanwhile must go where it was sent.
        self._progress = Progress(
            *columns, console=self._console, transient=True, redirect_stdout=False, redirect_stderr=False
        )
        if self._delay > 0:
            self._timer = threading.Timer(self._delay, self._draw, [self._progress])
            self._timer.daemon = True
            self._timer.start()
        else:
            self._progress.start()
        return self._progress

    def _draw(self, progress: Progress) -> None:
        with self._lock:
            if progress is self._progress:  # the work is not done yet
                progress.start()

    def close(self) -> None:
        """Draw no more. Work that was given up in the middle may not have said that it ended."""
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            progress, self._progress = self._progress, None
        if progress is not None:
            progress.stop()


_DISPLAY: ContextVar[_Display | None] = ContextVar("seu_bench_bars", default=None)


@contextlib.contextmanager
def shown(console: Console | None = None, delay: float = DELAY) -> Iterator[None]:
    """Have work inside draw bars.

    Args:
        console: where; ``None``: standard error. Nothing is drawn where it is no terminal.
        delay: work that is done within so many seconds draws nothing.
    """
    with contextlib.ExitStack() as stack:
        if console is None and sys.stderr.isatty():
            from rich.console import Console as NewConsole

            # A file of its own: what is done meanwhile may send standard error elsewhere.
            file = stack.enter_context(os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8"))
            console = NewConsole(file=file)
        display = _Display(console, delay) if console is not None and console.is_terminal else None
        token = _DISPLAY.set(display)
        try:
            yield
        finally:
            _DISPLAY.reset(token)
            if display is not None:
                display.close()


@contextlib.contextmanager
def hidden() -> Iterator[None]:
    """Have work inside draw nothing, whoever called."""
    token = _DISPLAY.set(None)
    try:
        yield
    finally:
        _DISPLAY.reset(token)


@contextlib.contextmanager
def bar(what: str, total: float | None = None) -> Iterator[Bar]:
    """A bar for a piece of work.

    Args:
        what: the work, in a word or two; shown as it is, without control characters.
        total: how much is to be done; ``None``: nobody knows.
    """
    display = _DISPLAY.get()
    if display is None:
        yield Bar()
        return
    from seu_bench.utils.text import printable

    with display.bar(printable(what), total) as drawn:
        yield drawn


def tracked(items: Iterable[Item], what: str, total: float | None = None) -> Iterator[Item]:
    """``items`` one after another, with a bar that counts those that are done.

    Args:
        what: the work, in a word or two.
        total: how many there are; where it is left out, their length, if they have one.
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    with bar(what, total) as drawn:
        for item in items:
            yield item
            drawn.advance()
