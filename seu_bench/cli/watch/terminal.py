"""The terminal of ``seu-bench watch``: its screen, and whether the user wants to leave."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from types import FrameType
from typing import Final

#: Keys that leave: q and Ctrl-D. Escape is the beginning of other keys as well.
_LEAVING: Final = frozenset(b"qQ\x04")


class Left(Exception):  # noqa: N818
    """The user, or the system by SIGTERM or SIGHUP, wants the command to end."""


@contextlib.contextmanager
def leaving() -> Iterator[None]:
    """Within, SIGTERM and SIGHUP raise :class:`Left`, so that the terminal is put right again."""

    def leave(_number: int, _frame: FrameType | None) -> None:
        raise Left

    wanted = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    heeded = [number for number in wanted if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, leave) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Keys:
    """Keys that the user presses, without waiting for the end of a line.

    Example:
        ``with Keys() as keys: keys.pressed_within(2.0)``
    """

    def __init__(self) -> None:
        self._handle: int | None = None
        self._before: list[object] | None = None

    def __enter__(self) -> Keys:
        """Have the terminal pass keys on one by one; elsewhere there are none."""
        with contextlib.suppress(ImportError, OSError, ValueError, AttributeError):
            import termios
            import tty

            handle = sys.stdin.fileno()
            # A job in the background would be stopped by the change.
            if os.isatty(handle) and os.tcgetpgrp(handle) == os.getpgrp():
                self._before = termios.tcgetattr(handle)
                tty.setcbreak(handle)
                self._handle = handle
        return self

    def __exit__(self, *_: object) -> None:
        """Put the terminal right again."""
        if self._handle is not None and self._before is not None:
            import termios

            with contextlib.suppress(OSError, termios.error):
                termios.tcsetattr(self._handle, termios.TCSADRAIN, self._before)  # type: ignore[arg-type]
        self._handle = None

    def pressed_within(self, seconds: float) -> bool:
        """Wait so long, or until a key that leaves is pressed; returns whether one was."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._handle is None:
                time.sleep(left)
                continue
            ready, _, _ = select.select([self._handle], [], [], left)
            if not ready:
                break
            pressed = os.read(self._handle, 1024)
            if not pressed:
                self._handle = None  # the terminal is gone
            if _LEAVING.intersection(pressed):
                return True
        return False
