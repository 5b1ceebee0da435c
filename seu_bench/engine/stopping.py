"""Stopping a run: at the next point between two epochs if that comes soon, anywhere otherwise."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Final

from seu_bench.errors import ExitStatus, Interruption

#: Seconds from a signal until a run is stopped at any point; leaves time to write its record within five.
GRACE: Final = 2.0


class StopRequest:
    """Whether a run is to stop, and why.

    Args:
        max_seconds: the run's time limit, from now on; ``None``: it has none.
        grace: seconds from a signal until the run is stopped at any point.
    """

    def __init__(self, max_seconds: float | None = None, grace: float = GRACE) -> None:
        self.max_seconds, self.grace = max_seconds, grace
        self._began = time.monotonic()
        self._asked: Interruption | None = None
        self._timer: threading.Timer | None = None
        self._settled = False

    def ask(self, interruption: Interruption) -> None:
        """Stop at the next checkpoint."""
        self._asked = self._asked or interruption

    def due(self, ahead: float = 0.0) -> Interruption | None:
        """Return the reason to stop now, with ``ahead`` seconds until the next point where that could be done."""
        limit = self.max_seconds
        if self._asked is None and limit is not None and self.seconds + ahead > limit:
            return Interruption(f"stopped by its time limit of {limit:g} seconds", ExitStatus.OUT_OF_TIME)
        return self._asked

    def settle(self) -> None:
        """The run is being ended: what it still has to write is not to be disturbed by another signal."""
        self._settled = True
        if self._timer is not None:
            self._timer.cancel()

    @property
    def seconds(self) -> float:
        """Since this object was made."""
        return time.monotonic() - self._began

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[None]:
        """SIGINT, SIGTERM and SIGHUP ask to stop; a second one, or ``grace`` seconds, stop at once.

        Only a process's main thread receives signals; elsewhere this has no effect.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        heeded = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # which nohup wants
            heeded.append(signal.SIGHUP)
        before = {number: signal.signal(number, self._handle_signal) for number in heeded}
        try:
            yield
        finally:
            self.settle()
            if self._timer is not None:
                self._timer.join()  # what it may just be sending is still to come to our handler
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:
        if self._settled:
            return
        if self._asked is not None:
            raise self._asked
        self.ask(Interruption(f"interrupted by {signal.Signals(number).name}", 128 + number))
        # The signal again, to the main thread, which it wakes from whatever that waits for.
        self._timer = threading.Timer(self.grace, signal.pthread_kill, (threading.main_thread().ident, number))
        self._timer.daemon = True
        self._timer.start()
