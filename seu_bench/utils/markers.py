"""A marker file as a lock: taken, refreshed, signed, followed where its holder is gone, and removed.

The marker is a :class:`filelock.SoftFileLease`. It needs nothing of the file system but that a file can be made where
none is. A holder of this host that is dead is followed at once. One of another host cannot be asked; it is followed
when its marker stood still for the lease, by the clock of the process that waits, so that clocks that differ or go back
do no harm. Beside the marker lies who holds it and since when.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from filelock import LeaseSettingsMismatch, SoftFileLease, Timeout

from seu_bench.errors import ResultsError
from seu_bench.utils.files import PART, cannot_write, make_folder, read_small, remove_parts, write_atomic
from seu_bench.utils.processes import here, lives, started
from seu_bench.utils.text import printable

#: Ending of the file that says who holds a marker.
_SIGNED: Final = ".holder"


@dataclass(frozen=True)
class Holder:
    """Who holds a lock.

    Attributes:
        since: UTC, e.g. ``2026-11-21 10:00:00``; ``None``: it is not known.
        alive: ``None``: it runs on another host, or cannot be asked.
    """

    pid: int
    host: str
    since: str | None
    alive: bool | None

    def __str__(self) -> str:
        since = f" since {printable(self.since)} UTC" if self.since else ""
        return f"process {self.pid} on host {printable(self.host)}{since}"


class FolderLock:
    """A marker of a given name in a folder, and the folders that had to be made for it.

    Attributes:
        path: the marker.
        lease: seconds after which a marker that stood still counts as abandoned.
        refreshed: whether the marker was another, or a fresher one, when it was looked at last than the time before.
    """

    def __init__(self, folder: Path, name: str, lease: float) -> None:
        self.folder = folder
        self.path = folder / name
        self.lease = lease
        self.refreshed = False
        self._lease = SoftFileLease(self.path, lease_duration=lease, heartbeat_interval=lease / 3, thread_local=False)
        self._made: list[Path] = []
        self._token: str | None = None
        self._seen: tuple[tuple[int, ...] | None, float] = (None, 0.0)

    def attempt(self) -> bool:
        """Try once to take the marker; a holder that is known to be dead is followed.

        Raises:
            ResultsError: the folder cannot be made or written to.
        """
        try:
            self._made += [folder for folder in _absent(self.folder) if folder not in self._made]
            make_folder(self.folder)
            self._lease.acquire(blocking=False)
            self._token = self._lease.token
            self._sign()
        except (Timeout, FileNotFoundError):
            return False  # where others removed a folder that was empty, it is made again at the next attempt
        except LeaseSettingsMismatch as error:
            raise ResultsError(
                "the lock there was made by a version of seu-bench that keeps locks in another way",
                where=str(self.path),
                remedy="use one version in one results folder; delete that file if nobody works there",
            ) from error
        except (OSError, ValueError) as error:
            raise cannot_write(self.path, error) from error
        remove_parts(self.folder)
        self._remove_stranded()
        return True

    def _remove_stranded(self) -> None:
        """Remove markers that a process had moved aside when it was killed in the middle of following another."""
        aside = re.compile(rf"{re.escape(self.path.name)}\.(break|restore)\.(\d+)\.[0-9a-f]+")
        with contextlib.suppress(OSError):
            for path in self.folder.glob(f"{self.path.name}.*"):
                found = aside.fullmatch(path.name)
                if found and lives(int(found[2]), None) is False:
                    with contextlib.suppress(OSError):
                        path.unlink()

    @contextlib.contextmanager
    def undone_on_failure(self) -> Iterator[None]:
        """Give back what was taken and made if the block fails or is interrupted."""
        self._made = []
        try:
            yield
        except BaseException:
            self.release()
            raise

    def look(self) -> Holder | None:
        """Who holds the marker; sets :attr:`refreshed`."""
        state = _state(self.path)
        self.refreshed = None not in (state, self._seen[0]) and state != self._seen[0]
        if state != self._seen[0]:
            self._seen = (state, time.monotonic())
        return holder_of_marker(self.path)

    def clear_abandoned(self, holder: Holder | None) -> None:
        """Remove a marker that nobody can hold any more and that the lease could not take over.

        It cannot where a file system has no exchange of two names, where nobody asked how the dead process ended, and
        where a process was killed before it wrote who it is.
        """
        state, since = self._seen
        # A little longer than the lease, which does it better: it takes a marker over in one step.
        still = time.monotonic() - since >= self.lease * 1.1
        if state is None or not (still or (holder is not None and holder.alive is False)):
            return
        aside = self.path.with_name(f".{self.path.name}.{secrets.token_hex(6)}{PART}")
        with contextlib.suppress(OSError), _pinned(self.path):
            if _state(self.path) != state:
                return
            self.path.rename(aside)
            moved = _state(aside)
            if moved is not None and moved[:2] == state[:2]:
                aside.unlink()
            elif _state(self.path) is None:
                aside.rename(self.path)  # somebody else took it in this very moment

    def check(self, name: str) -> None:
        """Make sure that the marker is still this process's; ``name`` is what it locks.

        Raises:
            ResultsError: it is not.
        """
        lost = self._lease.compromise
        for _ in range(20):
            owner = self._lease.owner
            if lost is None and self._token is not None and owner is not None and owner.token == self._token:
                return
            if lost is None and owner is None and _unreachable(self.path):
                return  # a network file system that is away; the lease says when that takes too long
            if lost is not None or not self.folder.is_dir():
                break
            time.sleep(0.05)  # one who looks whether a marker is stale may move it aside for a moment
        holder = holder_of_marker(self.path)
        if not self.folder.is_dir():
            what = f"the folder of {name} is gone"
        elif holder is not None:
            what = f"{name} was taken over by {holder}"
        else:
            what = f"the lock of {name} was lost" + (f": {lost.reason}" if lost is not None else "")
        raise ResultsError(
            what,
            where=str(self.folder),
            remedy="see who else works in that folder, then give the same command again",
        )

    def release(self) -> None:
        """Remove the marker if it is this process's, and what is empty then of the folders."""
        try:
            if self._token is not None and _read_signed(self.path).get("token") == self._token:
                with contextlib.suppress(OSError):
                    _signed(self.path).unlink()
        finally:
            try:
                with contextlib.suppress(OSError):
                    self._lease.release()
                self._token = None
            finally:
                for folder in (self.folder, *self._made):
                    with contextlib.suppress(OSError, ValueError):
                        folder.rmdir()  # refuses where something is in it

    def _sign(self) -> None:
        pid = os.getpid()
        document = {
            "token": self._token,
            "pid": pid,
            "since": datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S"),
            "where": here(),
            "started": started(pid),
        }
        write_atomic(_signed(self.path), json.dumps(document) + "\n", durable=False)


def holder_of_marker(marker: Path) -> Holder | None:
    """Who holds a marker, without taking it; ``None``: nobody, or it is no marker."""
    holder = None
    for attempt in range(10):
        if attempt:
            time.sleep(0.03)  # who holds it is written a moment after the marker
        owner = SoftFileLease(marker).owner
        if owner is None:
            return None
        holder = Holder(owner.pid, owner.hostname, None, None)
        signed = _read_signed(marker)
        if signed.get("token") == owner.token:
            since, start = signed.get("since"), signed.get("started")
            known = signed.get("where") == here() and signed.get("pid") == owner.pid
            alive = lives(owner.pid, start if isinstance(start, int) else None) if known else None
            return replace(holder, since=since if isinstance(since, str) and len(since) < 40 else None, alive=alive)
    return holder


def _signed(marker: Path) -> Path:
    return marker.with_name(marker.name + _SIGNED)


def _read_signed(marker: Path) -> dict[str, Any]:
    try:
        document = json.loads(read_small(_signed(marker), 4096) or b"")
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _absent(folder: Path) -> list[Path]:
    """The folder and those above it that are not there, the lowest first."""
    return [path for path in (folder, *folder.parents) if not os.path.lexists(path)]


def _state(path: Path) -> tuple[int, ...] | None:
    """What changes when a file is replaced or refreshed: the first two parts when it is replaced, or its time set."""
    try:
        state = path.lstat()
    except (OSError, ValueError):
        return None
    return state.st_ino, state.st_mtime_ns, state.st_ctime_ns, state.st_size


def _unreachable(path: Path) -> bool:
    """Whether it cannot even be said that nothing is there."""
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


@contextlib.contextmanager
def _pinned(path: Path) -> Iterator[None]:
    """Keep a file's inode, so that no other file gets its number meanwhile."""
    handle = os.open(path, getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_NOFOLLOW", 0))
    try:
        yield
    finally:
        os.close(handle)
