"""Who makes a run and who writes leaderboards, where several processes on several hosts share one results folder."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final

from seu_bench.errors import ResultsError, RunLockedError
from seu_bench.utils.files import refuse_link
from seu_bench.utils.markers import FolderLock, Holder, holder_of_marker
from seu_bench.utils.text import printable

#: Seconds without a sign of life after which a holder on another host counts as gone; it gives one every third of that.
LEASE: Final = 30.0
#: The marker in a run's folder.
LOCK_NAME: Final = "lock"


def say_nothing(text: str) -> None:
    """What a notice is told to where nobody listens."""


class RunLock:
    """The right to write into a run's folder, as a context manager or by :meth:`acquire` and :meth:`release`.

    Args:
        folder: the run's folder, ``<results>/runs/<run id>``.
        lease: seconds without a sign of life after which a holder on another host counts as gone; everybody must
            use the same.
    """

    def __init__(self, folder: Path, *, lease: float = LEASE) -> None:
        self.folder = folder
        self._name = f"run {printable(folder.name)}"
        self._lock = FolderLock(folder, LOCK_NAME, lease)

    def acquire(self, notice: Callable[[str], None] = say_nothing) -> None:
        """Make the folder and take the lock.

        A holder on another host is watched for as long as the lease, and followed if it gives no sign of life.

        Args:
            notice: is told once, if there is something to wait for.

        Raises:
            RunLockedError: somebody else is making this run.
            ResultsError: the folder cannot be made or written to.
        """
        refuse_link(self.folder, "remove it, or give another folder with --results")
        lock, told, began = self._lock, False, time.monotonic()
        with lock.undone_on_failure():
            while not lock.attempt():
                holder = lock.look()
                waited = time.monotonic() - began
                if holder is not None and (holder.alive or (told and lock.refreshed)):
                    raise RunLockedError(
                        f"{self._name} is held by {holder}",
                        where=str(self.folder),
                        remedy="wait until it has ended, or stop that process; then give the same command again",
                    )
                if waited > 2 * lock.lease + 10:
                    raise ResultsError(
                        f"{self._name} is marked as held by {holder or 'somebody unknown'}, who gives no sign of life; "
                        "the mark cannot be removed",
                        where=str(lock.path),
                        remedy="delete that file if nobody makes this run",
                    )
                # A mark that cannot be read is mostly one that is just being made, or removed.
                if not told and (waited > 2 if holder is None else holder.alive is None):
                    told = True
                    seconds = f"{lock.lease:.0f} seconds"
                    who = holder or "somebody unknown"
                    notice(f"{self._name} is marked as held by {who}: watching for up to {seconds} whether it lives")
                lock.clear_abandoned(holder)
                time.sleep(min(0.5, lock.lease / 20))

    def check(self) -> None:
        """Make sure that the lock is still held; cheap enough to be asked before every write.

        Raises:
            ResultsError: another process took it over, or the folder vanished.
        """
        self._lock.check(self._name)

    def release(self) -> None:
        """Give the lock back; does nothing where it is not held.

        Folders that are empty then are removed: the run's, and those above it that were made for it.
        """
        self._lock.release()

    def __enter__(self) -> RunLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def holder_of(folder: Path) -> Holder | None:
    """Who holds the lock of a run's folder, without taking it; ``None``: nobody."""
    return holder_of_marker(folder / LOCK_NAME)


@contextlib.contextmanager
def alone_in(folder: Path, wait: float = 60.0, *, lease: float = LEASE) -> Iterator[None]:
    """Be the only one that writes into ``folder`` for the length of a ``with`` block; others wait for their turn.

    The folder is made, and removed again if it is empty afterwards.

    Args:
        folder: what is written into.
        wait: seconds to wait for one's turn at the most.
        lease: as of :class:`RunLock`.

    Raises:
        ResultsError: it did not come, or the folder cannot be made or written to.
    """
    lock = FolderLock(folder, f".{LOCK_NAME}", lease)
    looked = began = time.monotonic()
    with lock.undone_on_failure():
        while not lock.attempt():
            now = time.monotonic()
            if now - looked >= min(1.0, wait):  # not at every attempt: those who wait shall not slow the writer
                looked, holder = now, lock.look()
                if now - began >= wait:
                    raise ResultsError(
                        f"waited {wait:.0f} seconds for {holder or 'somebody unknown'} to finish writing there",
                        where=str(folder),
                        remedy="give the command again when that process has ended",
                    )
                lock.clear_abandoned(holder)
            time.sleep(0.1)
    try:
        yield
    finally:
        lock.release()
