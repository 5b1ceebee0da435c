"""Locks held by this process, by another one, and by one on a second host."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from seu_bench.utils.locks import LEASE, RunLock

#: A process that takes the lock of argv[1] with a lease of argv[2] seconds, says so, and keeps it.
HOLD = """
import sys, time
from pathlib import Path
from seu_bench.utils.locks import RunLock
lock = RunLock(Path(sys.argv[1]), lease=float(sys.argv[2]))
lock.acquire()
print("held", flush=True)
time.sleep(60)
"""

#: Commands in a process whose host has another name; needs the right to make name spaces.
ELSEWHERE = ["unshare", "--uts", "sh", "-c", 'hostname elsewhere && exec "$0" "$@"']


def _can(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


elsewhere = pytest.mark.skipif(not _can(*ELSEWHERE, "true"), reason="no second host can be had here")


@contextlib.contextmanager
def locked(folder: Path, *, lease: float = LEASE) -> Iterator[RunLock]:
    """The lock of ``folder``, held by this process."""
    lock = RunLock(folder, lease=lease)
    lock.acquire()
    try:
        yield lock
    finally:
        lock.release()


@contextlib.contextmanager
def held(folder: Path, *, lease: float = LEASE, prefix: list[str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock of ``folder``; it is killed at the end, unless the test did that."""
    command = [*(prefix or []), sys.executable, "-c", HOLD, str(folder), str(lease)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()
