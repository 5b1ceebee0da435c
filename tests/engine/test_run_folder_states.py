"""The list of runs: what is finished, running, interrupted or failed, and where it stands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.commands import Command
from support.locks import locked

from seu_bench.engine.checkpoint import Position
from seu_bench.engine.run_folder import list_runs
from seu_bench.results.record import Record, StageRecord, write_record
from seu_bench.utils.text import format_seconds

EVALUATION = StageRecord(name="evaluation", task=0, epochs=1, seconds=1.0, image_passes=8)


def a_run(results: Path, run_id: str, **fields: object) -> Path:
    """A record in its folder."""
    values = {"strategy": "naive", "benchmark": "b", "benchmark_version": 1, "protocol": "p", "seed": 0}
    record = Record.model_validate({"run_id": run_id, "task_names": ("a", "b"), **values, **fields})
    return write_record(results, record).parent


def test_states(tmp_path: Path, command: Command) -> None:
    """Each state is told as what it is; a run whose process is gone is interrupted, whatever its record says."""
    a_run(tmp_path, "a", status="finished", stages=(EVALUATION, EVALUATION), seconds=75.0)
    a_run(tmp_path, "b", status="running", stages=(EVALUATION,))
    a_run(tmp_path, "c", status="interrupted", error="interrupted by SIGTERM")
    a_run(tmp_path, "d", status="failed", error="the loss became nan")
    running = a_run(tmp_path, "e", status="running")
    (a_run(tmp_path, "f", status="finished") / "record.json").write_text("{")
    with locked(running):
        found = {run.run_id: run for run in list_runs(tmp_path)}
        states = {name: run.state for name, run in found.items()}
        shown = command("runs", "--results", tmp_path)
        listed = json.loads(command("runs", "--results", tmp_path, "--format", "json", "--state", "running").out)
    assert states == {
        "a": "finished",
        "b": "interrupted",
        "c": "interrupted",
        "d": "failed",
        "e": "running",
        "f": "unreadable",
    }
    assert (found["a"].evaluated, found["b"].evaluated) == (2, 1)
    assert found["b"].detail == "the process ended without a message"
    for words in (
        "2/2",
        format_seconds(75.0),
        "interrupted by SIGTERM",
        "the loss became nan",
        f"process {os.getpid()} on host",
    ):
        assert words in shown.out, words
    assert [(run["run_id"], run["pid"], run["tasks"]) for run in listed] == [("e", os.getpid(), 2)]


def test_no_runs(tmp_path: Path, command: Command) -> None:
    """An empty folder is no error."""
    assert command("runs", "--results", tmp_path).out == f"no runs in {tmp_path}\n"


@pytest.mark.long
@pytest.mark.skipif(os.name != "posix", reason="signals of Unix")
def test_an_epoch_that_takes_too_long(tmp_path: Path) -> None:
    """SIGTERM in the middle of a long epoch: the run is stopped within five seconds all the same, and goes on."""
    command = [sys.executable, "-m", "seu_bench.cli.main", "run", "--strategy", "naive", "--results", str(tmp_path)]
    asked = ["--benchmark", "pmnist", "--protocol", "paper", "--synthetic", "--device", "cpu"]
    with subprocess.Popen([*command, *asked], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not list(tmp_path.glob("runs/*/record.json")):
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        time.sleep(1)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate()
    assert process.returncode == 143
    assert err.endswith("interrupted by SIGTERM; run the same command again to resume\n")
    (run,) = list_runs(tmp_path)
    # No matter how many epochs a fast machine was through when the signal came.
    assert (run.state, run.detail) == ("interrupted", "interrupted by SIGTERM")
    assert run.position is None or (run.position.task, run.position.stage) == (0, "training")


def test_positions() -> None:
    """Between tasks, within a stage, before an evaluation."""
    assert str(Position(task=0)) == "task 1"
    assert str(Position(task=3, stage="search", epoch=2, epochs=9)) == "task 4, search, epoch 2 of 9"
    assert str(Position(task=3, stage="evaluation")) == "task 4, evaluation"
