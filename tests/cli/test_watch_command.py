"""``seu-bench watch`` as a command: one frame where nobody looks, lines, the page, and a real terminal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands import Command, write_package
from support.locks import locked
from support.sweeping import MODULES, POINTS
from support.watched import EVIL, contents, put_plan, put_run

from seu_bench.results.record import record_path

MAIN = [sys.executable, "-m", "seu_bench.cli.main"]


def test_one_frame(command: Command, tmp_path: Path) -> None:
    """Where the output is no terminal, and with ``--once``; the folder is as it was."""
    put_run(tmp_path, 0, "finished")
    put_run(tmp_path, 1, "failed", error="why")
    before = contents(tmp_path)
    for asked in ((), ("--once",)):
        answer = command("watch", "--results", tmp_path, *asked)
        assert (answer.status, answer.err) == (0, "")
        assert "2 runs: 1 failed, 1 finished" in answer.out and "why" in answer.out
        assert "\x1b" not in answer.out
    assert contents(tmp_path) == before


def test_nothing_there(command: Command, tmp_path: Path) -> None:
    """A folder that does not exist is said, and not made."""
    answer = command("watch", "--results", tmp_path / "none")
    assert (answer.status, "does not exist yet" in answer.out) == (0, True)
    assert list(tmp_path.iterdir()) == []
    answer = command("watch", "--page", "--once", "--results", tmp_path / "none")
    assert answer.status == 0 and list(tmp_path.iterdir()) == []


def test_until_done(command: Command, tmp_path: Path) -> None:
    """A line as the counts are, and whether all went well as the exit status."""
    put_run(tmp_path, 0, "finished")
    answer = command("watch", "--until-done", "--results", tmp_path)
    assert answer.status == 0
    assert re.fullmatch(r"\d\d:\d\d:\d\d 1 run: 1 finished\n", answer.out)
    put_run(tmp_path, 1, "failed", error="why")
    assert command("watch", "--until-done", "--results", tmp_path).status == 1
    assert command("watch", "--until-done", "--strategy", "naive", "--results", tmp_path).status == 1


def test_page(command: Command, tmp_path: Path) -> None:
    """To a file of any name, beside the runs, or to standard output; written in one step and never over a link."""
    put_run(tmp_path, 0, "finished")
    page = tmp_path / "somewhere" / "page.html"
    assert command("watch", "--once", "--page", page, "--results", tmp_path).status == 0
    assert "<title>1 finished" in page.read_text()
    assert [path.name for path in page.parent.iterdir()] == ["page.html"]
    assert command("watch", "--page", "--once", "--results", tmp_path).status == 0
    assert (tmp_path / "watch.html").is_file()
    answer = command("watch", "--page", "-", "--results", tmp_path)
    assert answer.out.startswith("<!doctype html>") and answer.out.endswith("</html>\n")
    page.unlink()
    page.symlink_to(tmp_path / "elsewhere")
    answer = command("watch", "--once", "--page", page, "--results", tmp_path)
    assert answer.status == 2 and "will not be replaced: it is a link" in answer.err
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("--interval", "0"), "--interval"),
        (("--rows", "-1"), "--rows"),
        (("--once", "--until-done"), "exclude each other"),
        (("--page", ""), "the path is empty"),
    ],
)
def test_refused(command: Command, tmp_path: Path, asked: tuple[str, ...], said: str) -> None:
    """In one message."""
    answer = command("watch", *asked, "--results", tmp_path)
    assert answer.status == 2 and said in answer.err and answer.out == ""


class Screen:
    """``seu-bench watch`` in a terminal of its own."""

    def __init__(self, *asked: object, columns: int = 100, lines: int = 30) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.before = termios.tcgetattr(slave)
        self._slave = slave
        environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            [*MAIN, "watch", "--interval", "0.1", *map(str, asked)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment | {"TERM": "xterm-256color"},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(slave, termios.TIOCSCTTY, 0),  # noqa: PLW1509  # a controlling terminal, whose keys it then reads
        )
        self.text = ""

    def shows(self, words: str, seconds: float = 60.0) -> bool:
        """Read until the words appear in what is drawn from now on."""
        began, until = len(self.text), time.monotonic() + seconds
        while time.monotonic() < until:
            if words in plain(self.text[began:]):
                return True
            if not self._read():
                break
        return words in plain(self.text[began:])

    def ended(self) -> int:
        """Read to the end; the exit status."""
        while self.process.poll() is None:
            self._read()
        while self._read(0.2):
            pass
        return self.process.returncode

    def press(self, keys: bytes) -> None:
        os.write(self.master, keys)

    @property
    def is_restored(self) -> bool:
        """Whether the terminal is as it was: its modes, its first screen, its cursor."""
        pairs = (("\x1b[?1049h", "\x1b[?1049l"), ("\x1b[?25l", "\x1b[?25h"))
        even = all(self.text.count(on) == self.text.count(off) == 1 for on, off in pairs)
        return even and termios.tcgetattr(self._slave) == self.before

    def _read(self, seconds: float = 1.0) -> bool:
        ready, _, _ = select.select([self.master], [], [], seconds)
        if ready:
            with contextlib.suppress(OSError):
                self.text += os.read(self.master, 65536).decode("utf-8", "replace")
        return bool(ready) or self.process.poll() is None

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self._slave)


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


@contextlib.contextmanager
def screen(*asked: object, **size: int) -> Iterator[Screen]:
    found = Screen(*asked, **size)
    try:
        yield found
    finally:
        found.close()


@pytest.mark.parametrize("how", ["q", "ctrl-c", "SIGTERM", "SIGHUP"])
def test_terminal(tmp_path: Path, how: str) -> None:
    """It follows the folder, ends in every way with exit status 0, and leaves the terminal as it was."""
    record = put_run(tmp_path, 0, "running", {})
    folder = record_path(tmp_path, record.run_id).parent
    with screen("--results", tmp_path) as seen:
        with locked(folder):
            assert seen.shows("task 3 of 4, training, epoch 3 of 8")
            put_run(tmp_path, 0, "running", {"epoch": 5})
            assert seen.shows("epoch 6 of 8")
        assert seen.shows("interrupted  cifar10 quick: naive, seed 0")
        put_run(tmp_path, 1, "failed", error=EVIL)
        assert seen.shows("1 failed, 1 interrupted") and seen.shows("[red]x[/red]<script>")
        assert "\x1b[2Jy" not in seen.text
        keys = {"q": b"xq", "ctrl-c": b"\x03"}
        if how in keys:
            seen.press(keys[how])
        else:
            seen.process.send_signal(getattr(signal, how))
        assert seen.ended() == 0
        assert seen.is_restored
        after = plain(seen.text.rpartition("\x1b[?1049l")[2])
        assert ("1 failed, 1 interrupted" in after) == (how in keys)
        assert "Traceback" not in seen.text


def test_lines_and_page_beside(tmp_path: Path) -> None:
    """Without a terminal and with a page it goes on: a line for each change, and at the end a page that is final."""
    put_plan(tmp_path, range(2))
    put_run(tmp_path, 0, "finished")
    command = [*MAIN, "watch", "--until-done", "--interval", "0.1", "--page", "--results", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().endswith("1 run: 1 finished, 1 pending\n")
        assert 'http-equiv="refresh"' in (tmp_path / "watch.html").read_text()
        put_run(tmp_path, 1, "finished")
        assert process.stdout.readline().endswith("2 runs: 2 finished\n")
        assert process.wait(30) == 0
    assert 'http-equiv="refresh"' not in (tmp_path / "watch.html").read_text()


@pytest.mark.long
def test_beside_a_real_run(tmp_path: Path) -> None:
    """A run of its own process: held after its first task, then finished."""
    site = write_package(tmp_path / "site", "a-stranger", POINTS, MODULES)
    results, gate = tmp_path / "results", tmp_path / "gate"
    gate.mkdir()
    (gate / "seed0").touch()
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    asked = ["run", "--strategy", "tiny", "--protocol", "smoke", "--limit", "8", "--results", str(results)]
    with screen("--results", results, "--until-done") as seen:
        assert seen.shows("the folder does not exist yet")
        with subprocess.Popen(
            [*MAIN, *asked], env=os.environ | {"PYTHONPATH": path, "GATE": str(gate)}, stderr=subprocess.DEVNULL
        ) as process:
            assert seen.shows("task 1 of 5, evaluation", 120)
            assert seen.shows("after 1 task: ")
            (gate / "seed0").unlink()
            assert process.wait(120) == 0
        assert seen.ended() == 0 and seen.is_restored
        assert "1 run: 1 finished" in plain(seen.text.rpartition("\x1b[?1049l")[2])
    (folder,) = (results / "runs").iterdir()
    assert sorted(path.name for path in folder.iterdir()) == ["model.safetensors", "record.json"]
