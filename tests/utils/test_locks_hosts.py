"""Locks between hosts: a living holder is watched and named, a dead one followed, one that was followed notices."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.locks import ELSEWHERE, HOLD, elsewhere, held, locked

from seu_bench.errors import ResultsError, RunLockedError
from seu_bench.utils.locks import RunLock


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "results" / "runs" / "a-run"


def _missing(*_: object) -> None:
    raise OSError(38, "Function not implemented")


@elsewhere
class TestTwoHosts:
    @pytest.mark.long
    def test_living_one_is_watched_then_named(self, folder: Path) -> None:
        told: list[str] = []
        with held(folder, lease=9, prefix=ELSEWHERE) as process, pytest.raises(RunLockedError) as caught:
            RunLock(folder, lease=9).acquire(told.append)
        assert f"held by process {process.pid} on host elsewhere" in str(caught.value)
        assert len(told) == 1
        assert "on host elsewhere" in told[0] and "watching for up to 9 seconds" in told[0]

    @pytest.mark.long
    def test_dead_one_is_followed_after_the_lease(self, folder: Path) -> None:
        told: list[str] = []
        with held(folder, lease=2, prefix=ELSEWHERE) as process:
            process.kill()
            process.wait()
            began = time.monotonic()
            lock = RunLock(folder, lease=2)
            lock.acquire(told.append)
            assert time.monotonic() - began >= 2
            lock.check()
            lock.release()
        assert len(told) == 1
        assert not folder.exists()

    @pytest.mark.long
    def test_dead_one_where_names_cannot_be_exchanged(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """As on NFS, and without links and without flock."""
        monkeypatch.setattr("filelock._soft.exchange_names", lambda *_: False)
        monkeypatch.setattr("filelock._util.exchange_names", lambda *_: False)
        monkeypatch.delattr(os, "link")
        monkeypatch.setattr("fcntl.flock", _missing)
        with held(folder, lease=2, prefix=ELSEWHERE) as process:
            process.kill()
            process.wait()
            with locked(folder, lease=2) as lock:
                lock.check()
        assert not folder.exists()

    @pytest.mark.long
    def test_clock_goes_back(self, folder: Path) -> None:
        """Times of files in the future, as another host's clock or a clock set back leave them, make no difference."""
        with held(folder, lease=2, prefix=ELSEWHERE) as process:
            process.kill()
            process.wait()
            os.utime(folder / "lock", (4e9, 4e9))
            with locked(folder, lease=2) as lock:
                lock.check()

    @pytest.mark.long
    def test_revived_one_notices(self, folder: Path) -> None:
        """One that slept longer than the lease was followed, and learns it from its next check."""
        code = HOLD.replace("time.sleep(60)", "sys.stdin.readline()\nlock.check()")
        command = [*ELSEWHERE, sys.executable, "-c", code, str(folder), "2"]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            process.send_signal(signal.SIGSTOP)
            lock = RunLock(folder, lease=2)
            lock.acquire()
            process.send_signal(signal.SIGCONT)
            _, said = process.communicate("\n")
            assert f"ResultsError: run a-run was taken over by process {os.getpid()}" in said
            lock.check()  # the one that left took nothing with it
            lock.release()
        assert not folder.exists()


class TestLost:
    def test_folder_vanished(self, folder: Path) -> None:
        lock = RunLock(folder)
        lock.acquire()
        shutil.rmtree(folder.parent.parent)
        with pytest.raises(ResultsError, match="the folder of run a-run is gone"):
            lock.check()
        lock.release()
        assert not folder.parent.parent.exists()

    def test_marker_vanished(self, folder: Path) -> None:
        with locked(folder) as lock:
            (folder / "lock").unlink()
            with pytest.raises(ResultsError, match="the lock of run a-run was lost"):
                lock.check()

    def test_was_never_held(self, folder: Path) -> None:
        with pytest.raises(ResultsError):
            RunLock(folder).check()
