"""Locks in shared folders: one process at a time makes a run or writes leaderboards, on however many hosts.

A lock is a marker file, a :class:`filelock.SoftFileLease`, which its holder refreshes. It needs nothing of the file
system but that a file can be created where none is. filelock follows a dead holder on this host at once; any other
when its marker stood still for the lease, by the clock of the process that waits.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
from filelock import LeaseSettingsMismatch, OwnerRecord, SoftFileLease, Timeout

from seu_bench.errors import ResultsError, RunLockedError
from seu_bench.utils.files import PART, cannot_write, make_folder, refuse_link, remove_parts
from seu_bench.utils.text import printable

#: Seconds without a refresh after which a holder on another host counts as gone; it refreshes every third of that.
LEASE: Final = 30.0
#: The marker in a run's folder.
LOCK_NAME: Final = "lock"
#: Inode of the host's own namespace of processes, fixed by Linux.
_HOST_NAMESPACE: Final = 0xEFFFFFFC


@dataclass(frozen=True)
class Holder:
    """Process that holds a lock."""

    pid: int
    host: str
    alive: bool | None  #: ``None``: it runs on another host.

    def __str__(self) -> str:
        return f"process {self.pid} on host {printable(self.host)}"


class _FolderLock:
    """A marker of a given name in a folder, and the folders that had to be made for it."""

    def __init__(self, folder: Path, name: str, lease: float) -> None:
        self.folder, self.path, self.lease = folder, folder / name, lease
        self._lease = SoftFileLease(self.path, lease_duration=lease, thread_local=False)
        self._made: list[Path] = []
        self._seen: tuple[int | None, float] = (None, 0.0)

    def try_acquire(self) -> bool:
        """Try once to take the marker, also from a holder that is gone."""
        try:
            missing = [path for path in (self.folder, *self.folder.parents) if not os.path.lexists(path)]
            self._made += [folder for folder in missing if folder not in self._made]
            make_folder(self.folder)
            self._lease.acquire(blocking=False)
        except (Timeout, LeaseSettingsMismatch, FileNotFoundError):
            self._remove_abandoned()
            return False  # where others removed a folder that was empty, it is made again at the next attempt
        except (OSError, ValueError) as error:
            raise cannot_write(self.path, error) from error
        remove_parts(self.folder)
        for aside in self.folder.glob(f"{self.path.name}.break.*"):
            # Of a process that was killed while it moved an empty marker aside. Others may be moved back.
            with contextlib.suppress(OSError):
                if not aside.lstat().st_size:
                    aside.unlink()
        return True

    def release(self) -> None:
        """Give the lock back if it is held; its folder and those made for it go where they are empty."""
        with contextlib.suppress(OSError):
            self._lease.release()
        for folder in (self.folder, *self._made):
            with contextlib.suppress(OSError, ValueError):
                folder.rmdir()  # refuses where something is in it
        self._made = []

    def _remove_abandoned(self) -> None:
        """Remove a marker that filelock leaves: of a process that was not reaped, without a name, or on some NFS."""
        state, now = _refresh(self.path), time.monotonic()
        if state != self._seen[0]:
            self._seen = state, now
        is_alive = holder.alive if (holder := holder_at(self.path)) is not None else None
        if state is None or is_alive or (is_alive is None and now - self._seen[1] < 1.1 * self.lease):
            return
        aside = self.path.with_name(f".{self.path.name}.{secrets.token_hex(6)}{PART}")
        with contextlib.suppress(OSError):
            self.path.rename(aside)
            if _refresh(aside) == state:
                aside.unlink()
            else:
                aside.rename(self.path)  # another process took it in this very moment


class RunLock(_FolderLock):
    """The right to write into a run's folder.

    Args:
        folder: the run's folder, ``<results>/runs/<run id>``.
        lease: seconds without a sign of life after which a holder on another host is followed; the same for all.
    """

    def __init__(self, folder: Path, *, lease: float = LEASE) -> None:
        super().__init__(folder, LOCK_NAME, lease)
        self._name = f"run {printable(folder.name)}"

    def acquire(self, notice: Callable[[str], None] = lambda _: None) -> None:
        """Make the folder and take the lock; ``notice`` is called once, if a holder on another host is watched.

        Raises:
            RunLockedError: another process is making this run.
            ResultsError: the folder cannot be made or written to.
        """
        refuse_link(self.folder, "remove it, or give another folder with --results")
        began, notified, refreshed = time.monotonic(), False, None
        try:
            while not self.try_acquire():
                holder, before, refreshed = holder_at(self.path), refreshed, _refresh(self.path)
                if holder is not None and (holder.alive or (notified and before != refreshed)):
                    remedy = "wait until it has ended, or stop that process; then give the same command again"
                    raise RunLockedError(f"{self._name} is held by {holder}", where=str(self.folder), remedy=remedy)
                if time.monotonic() - began > 2 * self.lease + 10:
                    what = f"{self._name} is marked as held by {holder or 'an unknown process'}, which shows no life"
                    remedy = "delete that file if no process makes this run"
                    raise ResultsError(f"{what}; the mark cannot be removed", where=str(self.path), remedy=remedy)
                if not notified and holder is not None and holder.alive is None:
                    notified = True
                    watching = f"watching for up to {self.lease:.0f} seconds whether it lives"
                    notice(f"{self._name} is marked as held by {holder}: {watching}")
                time.sleep(min(0.5, self.lease / 20))
        except BaseException:
            self.release()
            raise

    def check(self) -> None:
        """Check that the lock is still held; cheap enough to be asked before every write.

        Raises:
            ResultsError: another process took it over, or the folder vanished.
        """
        for _ in range(20):
            owner = self._lease.owner
            if self._lease.compromise is None and owner is not None and owner.token == self._lease.token:
                return
            if not self.folder.is_dir():
                break
            time.sleep(0.05)  # one who looks whether a marker is stale may move it aside for a moment
        if not self.folder.is_dir():
            what = f"the folder of {self._name} is gone"
        elif (holder := holder_at(self.path)) is not None:
            what = f"{self._name} was taken over by {holder}"
        else:
            what = f"the lock of {self._name} was lost"
        remedy = "see who else works in that folder, then give the same command again"
        raise ResultsError(what, where=str(self.folder), remedy=remedy)


@contextlib.contextmanager
def folder_lock(folder: Path, wait: float = 60.0) -> Iterator[None]:
    """Lock ``folder`` for a ``with`` block. It is made, and removed again if it is empty afterwards.

    Args:
        folder: to be written to by one process at a time.
        wait: seconds to wait for others at the most; a :class:`ResultsError` says who took longer.
    """
    lock = _FolderLock(folder, f".{LOCK_NAME}", LEASE)
    began = time.monotonic()
    try:
        while not lock.try_acquire():
            if time.monotonic() - began >= wait:
                what = f"waited {wait:.0f} seconds for {holder_at(lock.path) or 'an unknown process'} to finish there"
                raise ResultsError(what, where=str(folder), remedy="give the command again when that process has ended")
            time.sleep(0.1)
        yield
    finally:
        lock.release()


def holder_of(folder: Path) -> Holder | None:
    """Return the holder of a run folder's lock, without taking it; ``None``: there is none."""
    return holder_at(folder / LOCK_NAME)


def holder_at(marker: Path) -> Holder | None:
    """Return the holder of a marker; ``None``: there is none, or it is no marker."""
    owner = SoftFileLease(marker).owner
    return None if owner is None else Holder(owner.pid, owner.hostname, _is_alive(owner))


def _is_alive(owner: OwnerRecord) -> bool | None:
    """Whether the process that wrote a marker lives; ``None``: that cannot be found out here."""
    try:
        namespace = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        namespace = _HOST_NAMESPACE
    # As filelock writes it: a process's number means one process within its namespace only.
    if owner.hostname != socket.gethostname() + ("" if namespace == _HOST_NAMESPACE else f"?pidns-{namespace:x}"):
        return None
    try:
        if psutil.Process(owner.pid).status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):  # type: ignore[no-untyped-call]
            return False  # it has ended, and nobody asked how
        began = int(Path(f"/proc/{owner.pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    except psutil.NoSuchProcess:
        return False
    except (psutil.Error, OSError, ValueError, IndexError):
        return True  # the system knows no more
    return owner.start is None or began == owner.start % 2**64  # otherwise another process of the same number


def _refresh(marker: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return marker.lstat().st_mtime_ns
    return None
