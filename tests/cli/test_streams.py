"""Outputs that nobody reads or that are full: who only watches stops nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import FEW_IMAGES

from seu_bench.utils.progress import watching_console

MAIN = [sys.executable, "-m", "seu_bench.cli.main"]


def written_to(command: list[str], how: str) -> int:
    """The exit status of a command with both outputs into a pipe that nobody reads, or onto a full disk."""
    if how == "full":
        with Path("/dev/full").open("wb") as full:
            return subprocess.run([*MAIN, *command], stdout=full, stderr=full, check=False).returncode
    reading, writing = os.pipe()
    os.close(reading)
    try:
        return subprocess.run([*MAIN, *command], stdout=writing, stderr=writing, check=False).returncode
    finally:
        os.close(writing)


def test_what_cannot_be_written_is_dropped(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A pipe that nobody reads, a closed file, none at all; a stream that can be written to is."""
    watching_console().print("seen")
    assert capsys.readouterr().err == "seen\n"
    reading, writing = os.pipe()
    os.close(reading)
    with Path(os.devnull).open("w") as closed:
        pass
    with os.fdopen(writing, "w", buffering=1) as pipe:
        for stream in (pipe, closed, None):
            monkeypatch.setattr(sys, "stderr", stream)
            watching_console().print("not seen")
        monkeypatch.undo()
        os.dup2(os.open(os.devnull, os.O_WRONLY), writing)  # what is left in its buffer goes there


@pytest.mark.long
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
@pytest.mark.parametrize(("how", "status"), [("closed", 1), ("full", 2)])
@pytest.mark.parametrize("what", ["run", "tune"])
def test_what_is_made_is_finished(tmp_path: Path, what: str, how: str, status: int) -> None:
    """Records and tuned files are written; the exit status says that the summary was not."""
    (tmp_path / "few.toml").write_text(FEW_IMAGES)
    results = tmp_path / "results"
    asked = ["--strategy", "naive", "--benchmark", str(tmp_path / "few.toml"), "--results", str(results)]
    space = ["-g", "learning_rate=0.01,0.1", "--seeds", "100", "--method", "whole-stream", "--jobs", "1"]
    assert written_to([what, *asked, "--device", "cpu", *(space if what == "tune" else [])], how) == status
    if what == "tune":
        assert list(results.glob("tuned/*.toml"))
        return
    (path,) = results.glob("runs/*/record.json")
    assert json.loads(path.read_text())["status"] == "finished"
    assert list(results.glob("leaderboards/*.md"))
