"""How much commands say: --quiet on either side of the name, and --format json."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import Answer, Command

from seu_bench.results.record import Record, read_record, record_path

SMALL = ("--strategy", "naive", "--protocol", "smoke", "--limit", 8, "-o", "epochs=1")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One results folder for the runs of this module."""
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def quiet(command: Command, results: Path) -> Answer:
    """The answer of a run that says nothing but its id."""
    return command("run", *SMALL, "--results", results, "-q")


@pytest.fixture(scope="module")
def record(quiet: Answer, results: Path) -> Record:
    return read_record(record_path(results, quiet.out.strip()))


def test_quiet_on_both_sides(command: Command, quiet: Answer, record: Record, results: Path) -> None:
    assert (quiet.status, quiet.out, quiet.err) == (0, f"{record.run_id}\n", "")
    for before, after in ((["-q"], []), (["--quiet"], ["-q"])):
        assert command(*before, "run", *SMALL, "--results", results, *after) == quiet


def test_quiet_commands(command: Command, record: Record, results: Path) -> None:
    """Each prints what a script would go on with: files, ids, or the verdict."""
    place = ("--results", results)
    assert command("leaderboard", "-q", *place).out == ""
    assert command("verify", record.run_id, "-q", *place) == Answer(0, "no difference found\n", "")
    assert command("sweep", "-q", *SMALL, *place) == Answer(0, f"{record.run_id}\n", "")
    pending = command("sweep", "-q", "--dry-run", "--seeds", "0-2", *SMALL, *place)
    assert len(pending.out.splitlines()) == 2 and record.run_id not in pending.out


def test_json_is_the_file(command: Command, record: Record, results: Path) -> None:
    text = record_path(results, record.run_id).read_text(encoding="utf-8")
    asked = ("show", record.run_id, "--results", results, "--format", "json")
    assert command(*asked).out == text
    assert command("run", *SMALL, "--results", results, "--format", "json") == Answer(0, text, "")
    assert command(*asked, "--plot").status == 2


def test_json_of_a_sweep(command: Command, record: Record, results: Path) -> None:
    asked = ("sweep", *SMALL, "--results", results, "--format", "json")
    document = json.loads(command(*asked).out)
    (job,) = document["jobs"]
    assert (document["exit_status"], job["run_id"], job["status"], job["made"]) == (0, record.run_id, "finished", False)
    assert job["metrics"] == record.metrics
    (planned,) = json.loads(command(*asked, "--dry-run").out)["jobs"]
    assert planned == {"run_id": record.run_id, "label": job["label"], "state": "finished"}
