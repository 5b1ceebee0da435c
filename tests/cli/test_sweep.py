"""Sweeps from the command line, with the executor of the guide for plugins, which makes jobs in this process."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.commands import Answer, Command, Install
from support.locks import locked
from support.sweeping import FAILING, MODULES, POINTS

from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record, read_record
from seu_bench.results.record_files import read_records
from seu_bench.results.record_metrics import without_times
from seu_bench.sweeps.plan import plan_sweep
from seu_bench.sweeps.spec import make_spec

IN_TURN = ("--executor", "in_turn", "--device", "cpu")


@pytest.fixture(autouse=True)
def stranger(install: Install) -> Path:
    """The strategy, the metrics and the executor of a stranger."""
    return install("a-stranger", POINTS, MODULES)


def records(results: Path) -> dict[str, Record]:
    found = [record for record in read_records(results) if isinstance(record, Record)]
    return {record.run_id: record for record in found}


def written(results: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in results.glob("runs/*/record.json")}


def jobs_line(answer: Answer) -> str:
    (line,) = re.findall(r"^\d+ jobs?: .*$", answer.out, re.MULTILINE)
    return str(line)


def test_failing_jobs(command: Command, tmp_path: Path) -> None:
    """The others are made; a failure is told with its message; what is finished is not made again."""
    asked = ("sweep", *FAILING, "--seeds", "0-1", "--protocol", "quick", *IN_TURN, "--results", tmp_path)
    first = command(*asked)
    assert first.status == 1
    assert jobs_line(first) == "4 jobs: 0 finished, 4 pending"
    assert re.search(r"^2 finished, 2 failed$", first.out, re.MULTILINE)
    row = r"^split_digits quick: tiny \(fault=diverge.*: failed: the loss became nan"
    assert len(re.findall(row, first.out, re.MULTILINE)) == 2
    assert re.search(
        r"^\[2/4\] .*fault=diverge.*, seed 0: failed: the loss became nan .*error\.txt", first.err, re.MULTILINE
    )
    found = records(tmp_path)
    assert sorted(record.status for record in found.values()) == ["failed", "failed", "finished", "finished"]
    board = tmp_path / "leaderboards" / "split_digits-v2-quick.md"
    assert f"leaderboard: {board}\n" in first.out
    assert "2 records, 1 configuration" in board.read_text()
    before = written(tmp_path)
    again = command(*asked)
    assert (again.status, written(tmp_path)) == (1, before)
    assert jobs_line(again) == "4 jobs: 2 finished, 2 failed (with --retry-failed they are run again), 0 pending"
    assert "started" not in again.err
    assert len(re.findall(row, again.out, re.MULTILINE)) == 2
    retried = command(*asked, "--retry-failed")
    assert (retried.status, retried.err.count(": started")) == (1, 2)
    changed = {path for path, time in written(tmp_path).items() if time != before[path]}
    assert changed == {path for path in before if read_record(Path(path)).status == "failed"}
    healthy = command(*asked, "-o", "benchmark.stream.validation=0.2", "--dry-run")  # another run
    assert jobs_line(healthy) == "4 jobs: 0 finished, 4 pending"


def test_equal_to_single_runs(command: Command, tmp_path: Path) -> None:
    """A job's record is that of ``run``; once more there is nothing to do, and the status is 0."""
    common = ("--protocol", "smoke", "-o", "epochs=1", "--device", "cpu")
    asked = ("sweep", "--strategy", "tiny,naive", "--seeds", "0,3", *common, *IN_TURN, "--results", tmp_path / "a")
    answer = command(*asked, "--log", "tensorboard", "--log-option", f"tensorboard.folder={tmp_path / 'events'}")
    assert answer.status == 0, answer.err
    for strategy in ("tiny", "naive"):
        for seed in (0, 3):
            alone = ("run", "--strategy", strategy, "--seed", seed, *common, "--results", tmp_path / "b")
            assert command(*alone).status == 0
    swept, single = records(tmp_path / "a"), records(tmp_path / "b")
    assert swept.keys() == single.keys()
    assert {path.parent.parent.name for path in (tmp_path / "events").rglob("events.*")} == swept.keys()
    for run_id, record in swept.items():
        assert without_times(record) == without_times(single[run_id])
    # Both are one sweep's, wherever they were made; smoke runs are in no leaderboard.
    done = command(*asked[:-1], tmp_path / "b")
    assert (done.status, done.err, jobs_line(done)) == (0, "", "4 jobs: 4 finished, 0 pending")
    assert done.out.endswith("4 finished\n")
    assert not (tmp_path / "b" / "leaderboards").exists()


def test_held_by_another(command: Command, tmp_path: Path) -> None:
    """A run that another process makes is looked at last, and a row says who has it."""
    asked = ("sweep", "--strategy", "tiny", "--seeds", "0-1", "--protocol", "smoke", *IN_TURN, "--results", tmp_path)
    spec = make_spec({"strategy": "tiny", "seeds": "0-1", "protocol": "smoke", "results": tmp_path})
    first, second = plan_sweep(Registry(), spec).jobs
    with locked(tmp_path / "runs" / first.run_id):
        answer = command(*asked)
    assert answer.status == 1
    assert jobs_line(answer) == "2 jobs: 0 finished, 1 running elsewhere (checked last), 2 pending"
    assert re.search(r"1 finished, 1 held by another process|1 held by another process, 1 finished", answer.out)
    assert "is held by process" in answer.out
    assert answer.err.index(f"seed {second.seed}: started") < answer.err.index(f"seed {first.seed}: started")
    assert command(*asked).status == 0
