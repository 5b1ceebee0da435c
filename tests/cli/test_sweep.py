"""Sweeps from the command line, with the executor of the guide for plugins, which makes jobs in this process."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from support.commands import Answer, Command, Install
from support.locks import locked
from support.sweeping import FAILING, MODULES, POINTS

import seu_bench
from seu_bench.errors import UnknownNameError
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
    """The others are made; a failure is a row with its message; what is finished is not made again."""
    asked = ("sweep", *FAILING, "--seeds", "0-1", "--protocol", "quick", *IN_TURN, "--results", tmp_path)
    first = command(*asked)
    assert first.status == 1
    assert jobs_line(first) == "4 jobs: 0 finished, 4 pending"
    assert re.search(r"^2 finished, 2 failed$", first.out, re.MULTILINE)
    row = r"^ split_digits quick: tiny \(fault=diverge.* +failed +- +- +- +the loss became nan"
    assert len(re.findall(row, first.out, re.MULTILINE)) == 2
    assert re.search(
        r"^\[2/4\] .*fault=diverge.*, seed 0: failed: the loss became nan .*error\.txt", first.err, re.MULTILINE
    )
    found = records(tmp_path)
    assert sorted(record.status for record in found.values()) == ["failed", "failed", "finished", "finished"]
    # Leaderboards at the end, with both seeds.
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


def test_merged_by_copying(command: Command, tmp_path: Path) -> None:
    """The runs of two sweeps in one folder are one sweep; the leaderboard has both."""
    asked = ("--strategy", "tiny", "--protocol", "quick", "-o", "epochs=1", *IN_TURN)
    for seeds, name in (("0", "a"), ("1-2", "b")):
        assert command("sweep", *asked, "--seeds", seeds, "--results", tmp_path / name).status == 0
    shutil.copytree(tmp_path / "b" / "runs", tmp_path / "a" / "runs", dirs_exist_ok=True)
    board = tmp_path / "a" / "leaderboards" / "split_digits-v2-quick.csv"
    assert read_seeds(board) == [1]
    assert command("leaderboard", "--results", tmp_path / "a").status == 0
    assert read_seeds(board) == [3]
    board.unlink()
    both = command("sweep", *asked, "--seeds", "0-2", "--results", tmp_path / "a")
    assert (both.status, jobs_line(both), read_seeds(board)) == (0, "3 jobs: 3 finished, 0 pending", [3])


def read_seeds(board: Path) -> list[int]:
    import pandas

    return [int(seeds) for seeds in pandas.read_csv(board)["seeds"]]


def test_leaderboard_of_another_scenario(command: Command, tmp_path: Path) -> None:
    """Its file is named at the end, and no other one."""
    small = ("-o", "backbone=mlp", "-o", "width=0.05", "-o", "epochs=1")
    scenario = ("-o", "benchmark.stream.scenario=class")
    asked = ("--strategy", "naive", "--protocol", "quick", *small, *scenario, *IN_TURN, "--results", tmp_path)
    answer = command("sweep", *asked)
    assert answer.status == 0
    assert re.findall("^leaderboard: (.*)$", answer.out, re.MULTILINE) == [
        str(tmp_path / "leaderboards" / "split_digits-class-v2-quick.md")
    ]


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


def test_from_python(tmp_path: Path) -> None:
    """The same, as a value: records, and what failed with its message."""
    result = seu_bench.sweep(
        strategy="tiny", options={"fault": ["none", "diverge"], "epochs": 1}, protocol="quick",
        executor="in_turn", results=tmp_path,
    )  # fmt: skip
    (record,) = result.records
    assert (record.status, record.metrics["acc"] is not None, result.exit_code) == ("finished", True, 1)
    (failed,) = result.select("failed")
    assert failed.message.startswith("the loss became nan in stage 'training' of task 1, epoch 1")
    assert (tmp_path / "leaderboards").is_dir()
    again = seu_bench.sweep(
        strategy="tiny", options={"epochs": 1}, executor="in_turn", results=tmp_path, protocol="quick"
    )
    assert ([job.made for job in again.jobs], again.exit_code) == ([False], 0)


def test_unknown_executor(command: Command, tmp_path: Path) -> None:
    """Refused, with those that there are; so is an option that it does not have."""
    asked = ("sweep", "--strategy", "tiny", "--protocol", "smoke", "--results", tmp_path / "results")
    unknown = command(*asked, "--executor", "slurp")
    assert (unknown.status, "the executors are: in_turn, local" in unknown.err) == (2, True)
    options = command(*asked, "--executor", "in_turn", "--jobs", 2)
    assert (options.status, "'jobs' is not an option" in options.err) == (2, True)
    assert not (tmp_path / "results").exists()
    with pytest.raises(UnknownNameError):
        Registry().executors.find("slurp")


#: An executor that refuses everything and says what it was given. The flag ``--device`` is the command's own.
FLAGGED = """
from typing import Annotated

from seu_bench import hookimpl
from seu_bench.config.options import Options
from seu_bench.config.run import CommandLine
from seu_bench.errors import RequestError


class FlaggedOptions(Options):
    queue: Annotated[str, CommandLine(("--queue",), "NAME")] = "short"
    device: Annotated[str, CommandLine(("--device",))] = "none"


class Flagged:
    summary = "refuses"
    options = FlaggedOptions
    detaches = False

    def build(self, options, device, threads):
        raise RequestError(f"{options.queue}, {options.device}, {device}")


@hookimpl
def register_executors(register):
    register("flagged", Flagged())
"""


def test_flags_of_an_executor(command: Command, install: Install, tmp_path: Path) -> None:
    """They come with it; the command's own come first, and ``-o`` reaches every option, but not what a flag set."""
    unknown = command("sweep", "--queue", "long")
    assert (unknown.status, "--queue" in unknown.err) == (2, True)
    install("another", {"flagged": "flagged"}, {"flagged": FLAGGED})
    asked = ("sweep", "--strategy", "naive", "--protocol", "smoke", "--results", tmp_path, "--executor", "flagged")
    for given, said in (
        (("--queue", "long", "--device", "cpu"), "long, none, cpu"),
        (("-o", "executor.queue=3", "-o", "executor.device=x"), "queue: Input should be a valid string"),
        (("--queue", "long", "-o", "executor.queue=x"), "option 'executor.queue' is given twice"),
        (("--partition", "debug"), "'partition' is not an option"),
    ):
        answer = command(*asked, *given)
        assert answer.status == 2 and said in answer.err, answer.err
    assert "--queue NAME" in command("sweep", "--help").out
