"""Locks: one process makes a run; who is gone is followed, who lives is named; nothing is left behind."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support.locks import held, locked

from seu_bench.errors import ResultsError, RunLockedError
from seu_bench.utils.locks import RunLock, alone_in, holder_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "results" / "runs" / "a-run"


class TestHolding:
    def test_leaves_nothing(self, tmp_path: Path, folder: Path) -> None:
        with locked(folder) as lock:
            lock.check()
            holder = holder_of(folder)
            assert holder is not None
            assert (holder.pid, holder.alive) == (os.getpid(), True)
            assert sorted(path.name for path in folder.iterdir()) == ["lock"]
        assert list(tmp_path.iterdir()) == []
        assert holder_of(folder) is None

    def test_leaves_what_is_not_empty(self, tmp_path: Path, folder: Path) -> None:
        with locked(folder):
            (folder / "record.json").write_text("{}")
        assert [path.name for path in folder.iterdir()] == ["record.json"]

    def test_leaves_folders_that_were_there(self, tmp_path: Path, folder: Path) -> None:
        folder.parent.mkdir(parents=True)
        with locked(folder):
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
        with locked(folder) as lock:
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

    @pytest.mark.parametrize("place", ["sleep", "taken"])
    def test_interrupted_while_taking(self, tmp_path: Path, folder: Path, place: str) -> None:
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
        if place == "sleep":
            (folder / "lock").unlink()
            folder.rmdir()
            shutil.rmtree(tmp_path / "results")
        assert list(tmp_path.iterdir()) == []


class TestTwoProcesses:
    def test_second_is_told_who(self, folder: Path) -> None:
        told: list[str] = []
        with held(folder) as process:
            with pytest.raises(RunLockedError) as caught:
                RunLock(folder).acquire(told.append)
            holder = holder_of(folder)
        assert told == []
        assert holder is not None and holder.alive
        text = str(caught.value)
        assert f"run a-run is held by process {process.pid} on host {holder.host}" in text
        assert str(folder) in text and "stop that process" in text

    @pytest.mark.parametrize("reaped", [True, False])
    def test_killed_one_is_followed_at_once(self, tmp_path: Path, folder: Path, reaped: bool) -> None:
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

    def test_recycled_number_is_another_process(self, folder: Path) -> None:
        """The number of a dead holder may be a living process's by now."""
        with locked(folder):
            kept = (folder / "lock").read_text()
        folder.mkdir(parents=True)
        (folder / "lock").write_text(re.sub(r"(?m)^start=.*$", "start=1", kept))
        holder = holder_of(folder)
        assert holder is not None and (holder.pid, holder.alive) == (os.getpid(), False)
        with locked(folder) as lock:
            lock.check()

    def test_stopped_one_still_holds(self, folder: Path) -> None:
        """A process that was put to sleep may wake up."""
        with held(folder, lease=1) as process:
            process.send_signal(signal.SIGSTOP)
            time.sleep(1.5)
            with pytest.raises(RunLockedError):
                RunLock(folder, lease=1).acquire()


class TestStrangeFiles:
    @pytest.mark.parametrize("content", [b"rubbish", b"\xff\x00" * 4000, b"1\n", b"filelock/2\npid=1\n"])
    @pytest.mark.long
    def test_rubbish_is_followed(self, folder: Path, content: bytes) -> None:
        folder.mkdir(parents=True)
        (folder / "lock").write_bytes(content)
        assert holder_of(folder) is None
        with locked(folder, lease=3) as lock:
            lock.check()
        assert not folder.exists()

    @pytest.mark.parametrize("kind", ["empty", "link", "pipe"])
    @pytest.mark.long
    def test_what_is_no_lock_is_followed(self, tmp_path: Path, folder: Path, kind: str) -> None:
        """A process may have been killed before it wrote who it is; links are not followed, pipes not opened."""
        folder.mkdir(parents=True)
        (tmp_path / "precious").write_text("kept")
        if kind == "empty":
            (folder / "lock").touch()
        elif kind == "link":
            (folder / "lock").symlink_to(tmp_path / "precious")
        else:
            os.mkfifo(folder / "lock")
        assert holder_of(folder) is None
        told: list[str] = []
        # Only the empty one is watched for as long as a lease; on a busy machine a short one may run out at once.
        lock = RunLock(folder, lease=3 if kind == "empty" else 60)
        lock.acquire(told.append)
        lock.check()
        lock.release()
        assert (tmp_path / "precious").read_text() == "kept"
        assert len(told) == (1 if kind == "empty" else 0)

    def test_host_that_drives_terminals(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "lock").write_text("filelock/2\npid=1\nhost=a\x1b[2Jb\nmode=lease\ntoken=t\nduration=3.0\n")
        assert "\x1b" not in str(holder_of(folder))

    def test_lock_of_another_kind(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "lock").write_text("filelock/2\npid=1\nhost=elsewhere\nmode=lease\ntoken=t\nduration=7.0\n")
        with pytest.raises(ResultsError, match="made by a version of seu-bench with another kind of lock"):
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
        with locked(folder):
            pass
        assert not folder.exists()


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


def test_marker_left_aside(tmp_path: Path) -> None:
    """Files of a process killed while it followed another are removed by the next; no others are."""
    folder = tmp_path / "a-run"
    folder.mkdir()
    with subprocess.Popen([sys.executable, "-c", "pass"]) as process:
        pass
    left = folder / f"lock.break.{process.pid}.{'0f' * 16}"
    other = folder / f"lock.break.{os.getpid()}.{'0f' * 16}"
    mine = folder / "lock.txt"
    for path in (left, other, mine):
        path.touch()
    with locked(folder):
        assert not left.exists() and other.exists() and mine.exists()
