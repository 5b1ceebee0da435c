"""``seu-bench runs --follow``: runs while they are made, on a terminal and elsewhere, until Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

from support.locks import held
from support.records import a_record

from seu_bench.engine.forecast import PROGRESS_NAME, RunProgress
from seu_bench.results.record import record_path, write_record

EVIL = "[red]x[/red]\x1b[2J\ny"


def put(results: Path, name: str, status: str, learned: int = 2, **fields: object) -> Path:
    """Write the record of a run of four tasks; its folder."""
    rows = tuple(tuple(0.5 + 0.1 * i if j <= i < learned else None for j in range(4)) for i in range(4))
    known = {"status": status, "task_names": tuple("abcd"), "accuracy_matrix": rows}
    write_record(results, a_record(name, **known, **fields))
    return record_path(results, name).parent


def until(stream: IO[str], text: str) -> str:
    """What a process prints, up to the line with a text."""
    seen = ""
    for line in stream:
        seen += line
        if text in line:
            return seen
    raise AssertionError(f"{text!r} did not appear in {seen!r}")


def test_lines(tmp_path: Path) -> None:
    """Where there is no terminal a line for each change; running runs have accuracy so far, others their reason."""
    folder = put(tmp_path, "first", "running")
    put(tmp_path, "broken", "failed", 0, error=f"{EVIL}\nmore")
    command = [sys.executable, "-m", "seu_bench", "runs", "--follow", "--results", str(tmp_path)]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with held(folder), subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        seen = until(process.stdout, "broken")
        assert seen.splitlines() == ["first: running, 2/4, 60.00 %", "broken: failed, 0/4, -, -, [red]x[/red] [2J"]
        put(tmp_path, "first", "finished", 4)
        until(process.stdout, "first: finished, 4/4, 80.00 %, -")
        process.send_signal(signal.SIGINT)
        assert (process.stdout.read(), process.wait()) == ("", 0)


def test_a_terminal(tmp_path: Path) -> None:
    """Running runs come first, with stage and time left."""
    put(tmp_path, "a-finished-run", "finished", 4)
    folder = put(tmp_path, "z-run", "running")
    progress = RunProgress(task=2, tasks=4, stage="search", epoch=2, epochs=8, remaining=75.0)
    (folder / PROGRESS_NAME).write_text(progress.model_dump_json())
    leader, follower = os.openpty()
    command = [sys.executable, "-m", "seu_bench", "runs", "--follow", "--results", str(tmp_path)]
    environment = os.environ | {"COLUMNS": "150", "LINES": "40"}
    with held(folder), subprocess.Popen(command, stdout=follower, stderr=follower, env=environment) as process:
        os.close(follower)
        shown, end = "", time.monotonic() + 60
        while "a-finished-run" not in shown and time.monotonic() < end:
            shown += os.read(leader, 65536).decode()
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # how Linux says that the other end is closed
            while more := os.read(leader, 65536):
                shown += more.decode()
        assert process.wait() == 0
    os.close(leader)
    first, second = shown.index("z-run"), shown.index("a-finished-run")
    assert first < second and "Ctrl-C ends" in shown
    assert all(text in shown[first:second] for text in ("60.00 %", "1 min 15 s left", "task 3, search, epoch 3"))
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h")
