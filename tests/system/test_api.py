"""seu-bench from Python: the same requests, the same records and the same errors as on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.commands import Command

import seu_bench
from seu_bench.errors import DataMissingError, OptionError, RunError, SeuBenchError, UnknownNameError
from seu_bench.results.record import read_record, record_path
from seu_bench.results.record_metrics import without_times


def test_same_record_as_the_command(command: Command, tiny: Path, tmp_path: Path) -> None:
    """``seu_bench.run`` returns what the command writes, and each finds the other's finished run."""
    asked = ("--strategy", "tiny", "--protocol", "smoke", "--limit", 8, "--seed", 5, "-o", "learning_rate=0.1")
    assert command("run", *asked, "--results", tmp_path / "command").status == 0
    record = seu_bench.run(
        "tiny", protocol="smoke", limit=8, seed=5, options={"learning_rate": 0.1}, results=tmp_path / "python"
    )
    written = read_record(record_path(tmp_path / "command", record.run_id))
    assert without_times(written) == without_times(record)
    assert read_record(record_path(tmp_path / "python", record.run_id)) == record
    found = seu_bench.run(
        "tiny", protocol="smoke", limit=8, seed=5, options={"learning_rate": 0.1}, results=str(tmp_path / "command")
    )
    assert found == written
    assert "finished before" in command("run", *asked, "--results", tmp_path / "python").out


def test_restart_and_components(tiny: Path, tmp_path: Path) -> None:
    """The keywords are named as the command's options."""
    first = seu_bench.run("tiny", protocol="smoke", limit=8, results=tmp_path)
    assert seu_bench.run("tiny", protocol="smoke", limit=8, results=tmp_path) == first
    forced = seu_bench.run("tiny", protocol="smoke", limit=8, results=tmp_path, restart=True)
    assert forced != first
    assert without_times(forced) == without_times(first)
    with pytest.raises(SeuBenchError, match="'tiny' takes no searcher"):
        seu_bench.run("tiny", searcher="mdl", results=tmp_path)
    with pytest.raises(UnknownNameError, match="no creator is called 'none'"):
        seu_bench.run("seu", creator="none", results=tmp_path)


def test_silent_unless_asked(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A notebook is not written into; with ``progress`` it is told of the stages."""
    seu_bench.run("tiny", protocol="smoke", limit=8, results=tmp_path)
    assert capsys.readouterr() == ("", "")
    seu_bench.run("tiny", protocol="smoke", limit=8, results=tmp_path, restart=True, progress=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "task 5/5 evaluation" in captured.err


def test_errors(tiny: Path, tmp_path: Path) -> None:
    """Errors are raised by their class, and nothing is written where a request was refused."""
    results = tmp_path / "results"
    with pytest.raises(UnknownNameError, match="did you mean 'seu'"):
        seu_bench.run("sue", results=results)
    with pytest.raises(OptionError, match="epochs"):
        seu_bench.run("tiny", options={"epochs": "x"}, results=results)
    with pytest.raises(OptionError, match="seed: "):
        seu_bench.run("tiny", seed="1", results=results)
    for limit in (3, True, 8.0):
        with pytest.raises(OptionError, match="limit: "):
            seu_bench.run("tiny", limit=limit, results=results)
    with pytest.raises(DataMissingError, match="'mnist' is missing"):
        seu_bench.run("tiny", "pmnist", protocol="smoke", data_root=tmp_path / "none", results=results)
    assert not results.exists()
    with pytest.raises(RunError, match="ZeroDivisionError") as error:
        seu_bench.run("tiny", protocol="smoke", limit=8, options={"fault": "raise"}, results=results)
    assert isinstance(error.value.__cause__, ZeroDivisionError)


def test_load_records(tiny: Path, tmp_path: Path) -> None:
    """Every record of a folder is a row, whatever became of its run."""
    made = [seu_bench.run("tiny", protocol="smoke", limit=8, seed=seed, results=tmp_path) for seed in (0, 1)]
    with pytest.raises(RunError):
        seu_bench.run("tiny", protocol="smoke", limit=8, options={"fault": "raise"}, results=tmp_path)
    frame = seu_bench.load_records(tmp_path).set_index("run_id")
    assert len(frame) == 3
    for record in made:
        row = frame.loc[record.run_id]
        assert (row["status"], row["seed"], row["acc"]) == ("finished", record.seed, record.metrics["acc"])
        assert not row["may_be_ranked"]
    assert sorted(frame["status"]) == ["failed", "finished", "finished"]
