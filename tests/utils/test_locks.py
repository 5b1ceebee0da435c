"""Locks: one process makes a run; who is gone is followed, who lives is named; nothing is left behind."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.locks import ELSEWHERE, HOLD, elsewhere, held, locked

from seu_bench.errors import ResultsError, RunLockedError
from seu_bench.utils.locks import RunLock, folder_lock, holder_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "results" / "runs" / "a-run"


def _missing(*_: object) -> None:
    raise OSError(38, "Function not implemented")


def test_leaves_nothing_but_what_was_written(tmp_path: Path, folder: Path) -> None:
    lock = RunLock(folder)
    lock.release()  # does nothing: it is not held
    for _ in range(2):
        lock.acquire()
        lock.check()
        holder = holder_of(folder)
        assert holder is not None and (holder.pid, holder.alive) == (os.getpid(), True)
        assert [path.name for path in folder.iterdir()] == ["lock"]
        with pytest.raises(RunLockedError, match=f"run a-run is held by process {os.getpid()} on host "):
            RunLock(folder).acquire()
        lock.release()
        lock.release()
        assert list(tmp_path.iterdir()) == [] and holder_of(folder) is None
    with locked(folder):
        (folder / "record.json").write_text("{}")
        (folder / ".record.json.0123.part").write_text("{")
    with locked(folder):  # and what a killed process left half-written is removed
        pass
    assert [path.name for path in folder.iterdir()] == ["record.json"]


def test_removes_empty_markers_that_were_moved_aside(folder: Path) -> None:
    """Of a process that was killed while it broke a lock; one with a name in it may be moved back."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("lock.break.1.ab", ""), ("lock.break.2.cd", "held")):
        (folder / name).write_text(text)
    lock = RunLock(folder)
    lock.acquire()
    lock.release()
    assert [path.name for path in folder.iterdir()] == ["lock.break.2.cd"]


def test_plain_error_where_it_cannot_be_taken(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for name in ("file", "file/below", "x" * 300, "made/" + "x" * 300):
        with pytest.raises(ResultsError, match="cannot write results"):
            RunLock(tmp_path / name / "runs" / "a-run").acquire()
    (tmp_path / "runs" / "lock").mkdir(parents=True)
    with pytest.raises(ResultsError, match="cannot write results: Is a directory"):
        RunLock(tmp_path / "runs").acquire()
    folder.parent.mkdir(parents=True)
    (tmp_path / "precious").mkdir()
    folder.symlink_to(tmp_path / "precious")
    with pytest.raises(ResultsError, match="is a link"):
        RunLock(folder).acquire()
    assert list((tmp_path / "precious").iterdir()) == []


@pytest.mark.parametrize("place", ["sleep", "taken"])
def test_interrupted_while_taking(tmp_path: Path, folder: Path, place: str) -> None:
    """Ctrl-C leaves neither a lock nor folders, whether it comes while waiting or half-way."""
    code = (
        "import os, signal, sys, time; from pathlib import Path; import seu_bench.utils.locks as locks\n"
        "from seu_bench.utils.locks import RunLock\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what runs in the background\n"
        "def interrupt(*a, **k): os.kill(os.getpid(), signal.SIGINT); return 0\n"
        "if sys.argv[2] == 'sleep': time.sleep = interrupt\n"
        "else: locks.remove_parts = interrupt\n"
        "try: RunLock(Path(sys.argv[1])).acquire()\n"
        "except KeyboardInterrupt: print('stopped')\n"
    )
    if place == "sleep":
        folder.mkdir(parents=True)
        (folder / "lock").write_text("rubbish")
    done = subprocess.run([sys.executable, "-c", code, folder, place], capture_output=True, text=True, check=True)
    assert done.stdout == "stopped\n"
    assert [path.name for path in tmp_path.rglob("lock")] == (["lock"] if place == "sleep" else [])
    assert place == "sleep" or list(tmp_path.iterdir()) == []


def test_second_process_is_told_who(folder: Path) -> None:
    told: list[str] = []
    with held(folder, lease=1) as process:
        process.send_signal(signal.SIGSTOP)  # it may wake up, and still holds
        time.sleep(1.5)
        with pytest.raises(RunLockedError) as caught:
            RunLock(folder, lease=1).acquire(told.append)
        holder = holder_of(folder)
    assert told == []
    assert holder is not None and holder.alive
    text = str(caught.value)
    assert f"run a-run is held by process {process.pid} on host {holder.host}" in text
    assert str(folder) in text and "stop that process" in text


@pytest.mark.parametrize("reaped", [True, False])
def test_killed_process_is_followed_at_once(tmp_path: Path, folder: Path, reaped: bool) -> None:
    """Even where its parent did not ask how it ended."""
    with held(folder, lease=600) as process:
        process.kill()
        if reaped:
            process.wait()
        else:
            while (holder := holder_of(folder)) is not None and holder.alive:
                time.sleep(0.01)
        with locked(folder, lease=600) as lock:  # whoever waited for the lease would wait long
            lock.check()
            holder = holder_of(folder)
            assert holder is not None and holder.pid == os.getpid()
    assert list((tmp_path / "results" / "runs").iterdir()) == []


def test_recycled_number_is_another_process(folder: Path) -> None:
    """The number of a dead holder may be a living process's by now."""
    with locked(folder):
        kept = (folder / "lock").read_text()
    folder.mkdir(parents=True)
    (folder / "lock").write_text(re.sub(r"(?m)^start=.*$", "start=1", kept))
    holder = holder_of(folder)
    assert holder is not None and (holder.pid, holder.alive) == (os.getpid(), False)
    with locked(folder) as lock:
        lock.check()


@pytest.mark.long
@pytest.mark.parametrize("content", ["rubbish", "empty", "link", "pipe"])
def test_what_is_no_lock_is_followed(tmp_path: Path, folder: Path, content: str) -> None:
    """A process may have been killed before it wrote who it is; links are not followed, pipes not opened."""
    folder.mkdir(parents=True)
    (tmp_path / "precious").write_text("kept")
    if content == "link":
        (folder / "lock").symlink_to(tmp_path / "precious")
    elif content == "pipe":
        os.mkfifo(folder / "lock")
    else:
        (folder / "lock").write_bytes(b"\xff\x00" * 4000 if content == "rubbish" else b"")
    assert holder_of(folder) is None
    with locked(folder, lease=2 if content == "empty" else 60) as lock:
        lock.check()
    assert (tmp_path / "precious").read_text() == "kept" and not folder.exists()


@elsewhere
@pytest.mark.long
class TestTwoHosts:
    def test_living_one_is_watched_then_named(self, folder: Path) -> None:
        told: list[str] = []
        with held(folder, lease=9, prefix=ELSEWHERE) as process, pytest.raises(RunLockedError) as caught:
            RunLock(folder, lease=9).acquire(told.append)
        assert f"held by process {process.pid} on host elsewhere" in str(caught.value)
        assert len(told) == 1
        assert "on host elsewhere" in told[0] and "watching for up to 9 seconds" in told[0]

    @pytest.mark.parametrize("nfs", [False, True])
    def test_dead_one_is_followed_after_the_lease(
        self, folder: Path, nfs: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also without links, flock and exchange of names, as on NFS, and with a host's clock in the future."""
        if nfs:
            monkeypatch.setattr("filelock._soft.exchange_names", lambda *_: False)
            monkeypatch.setattr("filelock._util.exchange_names", lambda *_: False)
            monkeypatch.delattr(os, "link")
            monkeypatch.setattr("fcntl.flock", _missing)
        told: list[str] = []
        with held(folder, lease=2, prefix=ELSEWHERE) as process:
            process.kill()
            process.wait()
            os.utime(folder / "lock", (4e9, 4e9))
            began = time.monotonic()
            lock = RunLock(folder, lease=2)
            lock.acquire(told.append)
            assert time.monotonic() - began >= 2
            lock.check()
            lock.release()
        assert len(told) == 1
        assert not folder.exists()

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


def test_lost_lock_is_noticed(folder: Path) -> None:
    with pytest.raises(ResultsError):
        RunLock(folder).check()
    with locked(folder) as lock:
        (folder / "lock").unlink()
        with pytest.raises(ResultsError, match="the lock of run a-run was lost"):
            lock.check()
    lock.acquire()
    shutil.rmtree(folder.parent.parent)
    with pytest.raises(ResultsError, match="the folder of run a-run is gone"):
        lock.check()
    lock.release()
    assert not folder.parent.parent.exists()


def test_folder_is_waited_for_only_so_long(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), folder_lock(tmp_path / "boards"):
        waiting = folder_lock(tmp_path / "boards", wait=0.2)
        with pytest.raises(ResultsError, match=f"waited 0 seconds for process {os.getpid()} on host"), waiting:
            pass
        assert (tmp_path / "boards" / ".lock").exists()
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
