"""Progress bars of long work that is not a run: on a terminal, on standard error, removed when the work is done.

Work reports its progress by :func:`tracked` or :func:`bar`. The caller decides whether anything is drawn: inside
:func:`shown`, where standard error is a terminal. Elsewhere nothing is drawn, so a library call is silent and a log
file stays readable.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sized
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from seu_bench.utils.console import tolerant
from seu_bench.utils.text import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

Item = TypeVar("Item")

#: Seconds; work that takes less draws nothing.
DELAY: Final = 0.3


class Bar:
    """Progress of a piece of work; ``update`` takes the arguments of :meth:`rich.progress.Progress.update`."""

    def __init__(self, update: Callable[..., None] = lambda **_: None) -> None:
        self._update = update

    def advance(self, count: float = 1) -> None:
        """Add ``count`` to what is done."""
        self._update(advance=count)

    def expect(self, total: float) -> None:
        """Set how much there is to do."""
        self._update(total=total)


class _Display:
    """A :class:`rich.progress.Progress` for nested work, drawn as long as there is any."""

    def __init__(self, console: Console, delay: float) -> None:
        self._console, self._delay = console, delay
        self._progress: Progress | None = None
        self._timer: threading.Timer | None = None

    @contextlib.contextmanager
    def bar(self, what: str, total: float | None) -> Iterator[Bar]:
        progress = self._progress or self._open()
        task = progress.add_task(what, total=total)
        try:
            yield Bar(partial(progress.update, task))
        finally:
            progress.remove_task(task)
            if progress is self._progress and not progress.tasks:
                self.close()

    def _open(self) -> Progress:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._progress = progress = Progress(
            *(TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()),
            console=self._console,
            transient=True,
            redirect_stdout=False,  # it would be drawn above the bars instead of going where the caller sent it
            redirect_stderr=False,
        )
        self._timer = threading.Timer(self._delay, progress.start)
        self._timer.daemon = True
        self._timer.start()
        return progress

    def close(self) -> None:
        """Remove the bars, also those of work that was abandoned halfway."""
        progress, self._progress = self._progress, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()  # it has started the bars, or never will
        if progress is not None:
            progress.stop()


_DISPLAY: ContextVar[_Display | None] = ContextVar("seu_bench_progress", default=None)


@contextlib.contextmanager
def shown(console: Console | None = None, delay: float = DELAY) -> Iterator[None]:
    """Draw bars of work inside, if the console is a terminal.

    Args:
        console: standard error by default.
        delay: seconds after which bars appear.
    """
    with contextlib.ExitStack() as stack:
        if console is None and sys.stderr.isatty():
            from rich.console import Console as NewConsole

            # A file of its own: work inside may redirect standard error.
            file = stack.enter_context(os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8"))
            console = NewConsole(file=tolerant(lambda: file))
        display = None
        if console is not None and console.is_terminal:
            display = stack.enter_context(contextlib.closing(_Display(console, delay)))
        stack.callback(_DISPLAY.reset, _DISPLAY.set(display))
        yield


@contextlib.contextmanager
def hidden() -> Iterator[None]:
    """Draw no bars of work inside, whatever the caller asked for."""
    token = _DISPLAY.set(None)
    try:
        yield
    finally:
        _DISPLAY.reset(token)


def bar(what: str, total: float | None = None) -> contextlib.AbstractContextManager[Bar]:
    """Draw a bar for a piece of work.

    Args:
        what: description in a word or two; control characters are removed.
        total: how much there is to do; ``None`` if unknown.

    Returns:
        A context of the bar, which is to be advanced; without effect where none is drawn.
    """
    display = _DISPLAY.get()
    return contextlib.nullcontext(Bar()) if display is None else display.bar(printable(what), total)


def tracked(items: Iterable[Item], what: str, total: float | None = None) -> Iterator[Item]:
    """Iterate over ``items`` with a bar that counts those that are done.

    Args:
        what: description in a word or two.
        total: how many there are, ``len(items)`` by default where they have a length.
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    with bar(what, total) as drawn:
        for item in items:
            yield item
            drawn.advance()
