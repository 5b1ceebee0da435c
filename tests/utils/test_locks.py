"""Locks: one process makes a run; who is gone is followed, who lives is named; nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from seu_bench.errors import ResultsError, RunLockedError
from seu_bench.utils.locks import LEASE, RunLock, alone_in, holder_of
from seu_bench.utils.processes import here, lives, started

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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "results" / "runs" / "a-run"


class TestHolding:
    def test_leaves_nothing(self, tmp_path: Path, folder: Path) -> None:
        with RunLock(folder) as lock:
            lock.check()
            holder = holder_of(folder)
            assert holder is not None
            assert (holder.pid, holder.alive) == (os.getpid(), True)
            assert sorted(path.name for path in folder.iterdir()) == ["lock", "lock.holder"]
        assert list(tmp_path.iterdir()) == []
        assert holder_of(folder) is None

    def test_leaves_what_is_not_empty(self, tmp_path: Path, folder: Path) -> None:
        with RunLock(folder):
            (folder / "record.json").write_text("{}")
        assert [path.name for path in folder.iterdir()] == ["record.json"]

    def test_leaves_folders_that_were_there(self, tmp_path: Path, folder: Path) -> None:
        folder.parent.mkdir(parents=True)
        with RunLock(folder):
            pass
        assert [path.name for path in (tmp_path / "results").iterdir()] == ["runs"]
        assert not folder.exists()

    def test_can_be_taken_again(self, folder: Path) -> None:
        lock = RunLock(folder)
        lock.release()  # does nothing: it is not held
        for _ in range(2):
            lock.acquire()
            lock.check()
            lock.release()
            lock.release()

    def test_in_one_process(self, folder: Path) -> None:
        with RunLock(folder) as lock:
            with pytest.raises(RunLockedError, match=f"run a-run is held by process {os.getpid()} on host "):
                RunLock(folder).acquire()
            lock.check()

    def test_sees_nothing_but_a_plain_error_where_it_cannot_be_taken(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("in the way")
        for name in ("file", "file/below", "x" * 300, "made/" + "x" * 300):
            with pytest.raises(ResultsError, match="cannot write results"):
                RunLock(tmp_path / name / "runs" / "a-run").acquire()
        (tmp_path / "runs" / "lock").mkdir(parents=True)
        with pytest.raises(ResultsError, match="cannot write results: Is a directory"):
            RunLock(tmp_path / "runs").acquire()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "runs"]

    @pytest.mark.parametrize("place", ["sleep", "fsync"])
    def test_interrupted_while_taking(self, tmp_path: Path, folder: Path, place: str) -> None:
        """Ctrl-C leaves neither a lock nor folders, whether it comes while waiting or half-way."""
        code = (
            "import os, signal, sys, time; from pathlib import Path; import seu_bench.utils.markers as markers\n"
            "from seu_bench.utils.locks import RunLock\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what runs in the background\n"
            "def interrupt(*a, **k): os.kill(os.getpid(), signal.SIGINT); return 0\n"
            "if sys.argv[2] == 'sleep': time.sleep = interrupt\n"
            "else: markers.started = interrupt\n"
            "try: RunLock(Path(sys.argv[1])).acquire()\n"
            "except KeyboardInterrupt: print('stopped')\n"
        )
        if place == "sleep":
            folder.mkdir(parents=True)
            (folder / "lock").write_text("rubbish")
        done = subprocess.run([sys.executable, "-c", code, folder, place], capture_output=True, text=True, check=True)
        assert done.stdout == "stopped\n"
        if place == "sleep":
            (folder / "lock").unlink()
            folder.rmdir()
            shutil.rmtree(tmp_path / "results")
        assert list(tmp_path.iterdir()) == []


class TestTwoProcesses:
    def test_second_is_told_who(self, folder: Path) -> None:
        told: list[str] = []
        with held(folder) as process:
            began = time.monotonic()
            with pytest.raises(RunLockedError) as caught:
                RunLock(folder).acquire(told.append)
            assert time.monotonic() - began < 5
            holder = holder_of(folder)
        assert told == []
        assert holder is not None and holder.alive
        text = str(caught.value)
        assert f"run a-run is held by process {process.pid} on host {holder.host} since {holder.since} UTC" in text
        assert str(folder) in text and "stop that process" in text
        assert time.strptime(holder.since or "", "%Y-%m-%d %H:%M:%S")

    @pytest.mark.parametrize("reaped", [True, False])
    def test_killed_one_is_followed_at_once(self, tmp_path: Path, folder: Path, reaped: bool) -> None:
        """Even where its parent did not ask how it ended."""
        told: list[str] = []
        with held(folder) as process:
            process.kill()
            if reaped:
                process.wait()
            else:
                while (holder := holder_of(folder)) is not None and holder.alive:
                    time.sleep(0.01)
            began = time.monotonic()
            with RunLock(folder) as lock:
                assert time.monotonic() - began < 5
                lock.check()
                holder = holder_of(folder)
                assert holder is not None and holder.pid == os.getpid()
        assert told == []
        assert list((tmp_path / "results" / "runs").iterdir()) == []

    def test_recycled_number_is_another_process(self, folder: Path) -> None:
        """The number of a dead holder may be a living process's by now."""
        with RunLock(folder):
            kept = {name: (folder / name).read_bytes() for name in ("lock", "lock.holder")}
        folder.mkdir(parents=True)
        start = str(started(os.getpid())).encode()
        boot = b"start="
        lines = [line for line in kept["lock"].splitlines() if not line.startswith(boot)]
        (folder / "lock").write_bytes(b"\n".join([*lines, boot + b"1"]) + b"\n")
        (folder / "lock.holder").write_bytes(kept["lock.holder"].replace(start, b"1"))
        holder = holder_of(folder)
        assert holder is not None and (holder.pid, holder.alive) == (os.getpid(), False)
        with RunLock(folder) as lock:
            lock.check()

    def test_stopped_one_still_holds(self, folder: Path) -> None:
        """A process that was put to sleep may wake up."""
        with held(folder, lease=1) as process:
            process.send_signal(signal.SIGSTOP)
            time.sleep(1.5)
            with pytest.raises(RunLockedError):
                RunLock(folder, lease=1).acquire()


@elsewhere
class TestTwoHosts:
    def test_living_one_is_watched_then_named(self, folder: Path) -> None:
        told: list[str] = []
        with held(folder, lease=3, prefix=ELSEWHERE) as process, pytest.raises(RunLockedError) as caught:
            RunLock(folder, lease=3).acquire(told.append)
        assert f"held by process {process.pid} on host elsewhere since " in str(caught.value)
        assert len(told) == 1
        assert "on host elsewhere" in told[0] and "watching for up to 3 seconds" in told[0]

    def test_dead_one_is_followed_after_the_lease(self, folder: Path) -> None:
        told: list[str] = []
        with held(folder, lease=2, prefix=ELSEWHERE) as process:
            process.kill()
            process.wait()
            began = time.monotonic()
            lock = RunLock(folder, lease=2)
            lock.acquire(told.append)
            assert 2 <= time.monotonic() - began < 8
            lock.check()
            lock.release()
        assert len(told) == 1
        assert not folder.exists()

    def test_dead_one_where_names_cannot_be_exchanged(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """As on NFS, and without links and without flock."""
        monkeypatch.setattr("filelock._soft.exchange_names", lambda *_: False)
        monkeypatch.setattr("filelock._util.exchange_names", lambda *_: False)
        monkeypatch.delattr(os, "link")
        monkeypatch.setattr("fcntl.flock", _missing)
        with held(folder, lease=2, prefix=ELSEWHERE) as process:
            process.kill()
            process.wait()
            with RunLock(folder, lease=2) as lock:
                lock.check()
        assert not folder.exists()

    def test_clock_goes_back(self, folder: Path) -> None:
        """Times of files in the future, as another host's clock or a clock set back leave them, make no difference."""
        with held(folder, lease=2, prefix=ELSEWHERE) as process:
            process.kill()
            process.wait()
            for name in ("lock", "lock.holder"):
                os.utime(folder / name, (4e9, 4e9))
            with RunLock(folder, lease=2) as lock:
                lock.check()

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


def _missing(*_: object) -> None:
    raise OSError(38, "Function not implemented")


class TestStrangeFiles:
    @pytest.mark.parametrize("content", [b"rubbish", b"\xff\x00" * 4000, b"1\n", b"filelock/2\npid=1\n"])
    def test_rubbish_is_followed(self, folder: Path, content: bytes) -> None:
        folder.mkdir(parents=True)
        (folder / "lock").write_bytes(content)
        (folder / "lock.holder").write_bytes(content)
        assert holder_of(folder) is None
        with RunLock(folder, lease=3) as lock:
            lock.check()
        assert not folder.exists()

    @pytest.mark.parametrize("kind", ["empty", "link", "pipe"])
    def test_what_is_no_lock_is_followed(self, tmp_path: Path, folder: Path, kind: str) -> None:
        """A process may have been killed before it wrote who it is; links are not followed, pipes not opened."""
        folder.mkdir(parents=True)
        (tmp_path / "precious").write_text("kept")
        for name in ("lock", "lock.holder"):
            if kind == "empty":
                (folder / name).touch()
            elif kind == "link":
                (folder / name).symlink_to(tmp_path / "precious")
            else:
                os.mkfifo(folder / name)
        assert holder_of(folder) is None
        told: list[str] = []
        # Only the empty one is watched for as long as a lease; on a busy machine a short one may run out at once.
        lock = RunLock(folder, lease=3 if kind == "empty" else 60)
        lock.acquire(told.append)
        lock.check()
        lock.release()
        assert (tmp_path / "precious").read_text() == "kept"
        assert len(told) == (1 if kind == "empty" else 0)

    @pytest.mark.parametrize(
        "signed", ["[]", "{", '{"token": 1}', '{"token": "TOKEN", "since": [1], "pid": "x", "where": {}}', "[" * 4000]
    )
    def test_strange_signature(self, folder: Path, signed: str) -> None:
        """Whatever lies beside the marker, the holder is told as far as it is known."""
        with RunLock(folder):
            token = next(line for line in (folder / "lock").read_text().splitlines() if line.startswith("token="))
            (folder / "lock.holder").write_text(signed.replace("TOKEN", token.removeprefix("token=")))
            holder = holder_of(folder)
            assert holder is not None
            assert (holder.pid, holder.since, holder.alive) == (os.getpid(), None, None)

    def test_host_that_drives_terminals(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "lock").write_text("filelock/2\npid=1\nhost=a\x1b[2Jb\nmode=lease\ntoken=t\nduration=3.0\n")
        assert "\x1b" not in str(holder_of(folder))

    def test_lock_of_another_kind(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "lock").write_text("filelock/2\npid=1\nhost=elsewhere\nmode=lease\ntoken=t\nduration=7.0\n")
        with pytest.raises(ResultsError, match="in another way"):
            RunLock(folder).acquire()

    def test_run_folder_that_is_a_link(self, tmp_path: Path, folder: Path) -> None:
        """It would be written to outside of the results folder."""
        (tmp_path / "precious").mkdir()
        folder.parent.mkdir(parents=True)
        folder.symlink_to(tmp_path / "precious")
        with pytest.raises(ResultsError, match="is a link"):
            RunLock(folder).acquire()
        assert list((tmp_path / "precious").iterdir()) == []

    def test_parts_of_a_killed_process_are_removed(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / ".record.json.0123.part").write_text("{")
        with RunLock(folder):
            pass
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
        with RunLock(folder) as lock:
            (folder / "lock").unlink()
            with pytest.raises(ResultsError, match="the lock of run a-run was lost"):
                lock.check()

    def test_was_never_held(self, folder: Path) -> None:
        with pytest.raises(ResultsError):
            RunLock(folder).check()


class TestAlone:
    def test_one_after_another(self, tmp_path: Path) -> None:
        """Threads that count in a file, which two at once would do wrongly."""
        counter = tmp_path / "counter"
        counter.write_text("0")

        def count() -> None:
            for _ in range(5):
                with alone_in(tmp_path / "boards"):
                    number = int(counter.read_text())
                    time.sleep(0.002)
                    counter.write_text(str(number + 1))

        threads = [threading.Thread(target=count) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert counter.read_text() == "20"
        assert [path.name for path in tmp_path.iterdir()] == ["counter"]

    def test_waits_only_so_long(self, tmp_path: Path) -> None:
        with alone_in(tmp_path / "boards"):
            waiting = alone_in(tmp_path / "boards", wait=0.2)
            with pytest.raises(ResultsError, match=f"waited 0 seconds for process {os.getpid()} on host"), waiting:
                pass
            assert (tmp_path / "boards" / ".lock").exists()

    def test_error_inside_gives_back(self, tmp_path: Path) -> None:
        with pytest.raises(ZeroDivisionError), alone_in(tmp_path / "boards"):
            raise ZeroDivisionError
        assert list(tmp_path.iterdir()) == []


class TestProcesses:
    def test_this_one_lives(self) -> None:
        assert lives(os.getpid(), started(os.getpid())) is True
        assert lives(os.getpid(), None) is True
        assert here() == here()

    def test_dead_one(self) -> None:
        with subprocess.Popen([sys.executable, "-c", ""]) as process:
            start = started(process.pid)
        assert lives(process.pid, start) is False

    def test_number_that_cannot_be(self) -> None:
        assert not lives(2**40, None)


def test_marker_left_aside(tmp_path: Path) -> None:
    """What a process left that was killed while it followed another is removed by the next; nobody else's is."""
    folder = tmp_path / "a-run"
    folder.mkdir()
    with subprocess.Popen([sys.executable, "-c", "pass"]) as process:
        pass
    left = folder / f"lock.break.{process.pid}.{'0f' * 16}"
    other = folder / f"lock.break.{os.getpid()}.{'0f' * 16}"
    mine = folder / "lock.txt"
    for path in (left, other, mine):
        path.touch()
    with RunLock(folder):
        assert not left.exists() and other.exists() and mine.exists()
