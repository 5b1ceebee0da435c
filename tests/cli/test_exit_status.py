"""Exit statuses: refused, failed and stopped runs differ, and the documentation's table has every one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.commands import Command

from seu_bench.errors import DataMissingError, ExitStatus, OptionError, PluginError, ResultsError, RunError

RUN = ("run", "--strategy", "naive", "--protocol", "smoke")


def test_diverged_run_has_failed(command: Command, tmp_path: Path) -> None:
    """A loss that is not finite is no typing error; the record says that the run failed."""
    answer = command(*RUN, "-o", "learning_rate=1e20", "-o", "clip_norm=1e30", "--results", tmp_path)
    assert answer.status == ExitStatus.FAILED == 3, answer
    assert answer.err.startswith("error: ") or "\nerror: " in answer.err
    assert "the loss became" in answer.err and "Traceback" not in answer.err
    assert re.search("failed +", command("runs", "--results", tmp_path).out)


@pytest.mark.parametrize("words", [("--strategy", "nave"), ("-o", "epochs=x"), ("--seed", "-1"), ("--fly",)])
def test_refused_run(command: Command, words: tuple[str, ...], tmp_path: Path) -> None:
    """Nothing was begun."""
    assert command(*RUN, *words, "--results", tmp_path).status == ExitStatus.REFUSED == 2
    assert list(tmp_path.iterdir()) == []


def test_time_limit_has_its_own(command: Command, tmp_path: Path) -> None:
    assert command(*RUN, "--max-seconds", "0.001", "--results", tmp_path).status == ExitStatus.OUT_OF_TIME == 75


def test_each_error_has_one() -> None:
    """Errors of a run that began have 3; all others 2, whatever they are about."""
    assert RunError("it failed").exit_status is ExitStatus.FAILED
    refused = (OptionError, DataMissingError, PluginError, ResultsError)
    assert {kind("no").exit_status for kind in refused} == {ExitStatus.REFUSED}


def test_table_has_every_status() -> None:
    """The reference, and the help of the command."""
    page = Path(__file__).resolve().parents[2] / "docs" / "reference" / "command_line.md"
    table = page.read_text(encoding="utf-8").partition("## Exit statuses")[2].partition("\n## ")[0]
    told = [int(number) for row in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE) for number in row.split(",")]
    assert told == [status.value for status in ExitStatus]


def test_help_tells_them(command: Command) -> None:
    told = command("--help").out.partition("Exit status:")[2].partition("\n\n")[0]
    assert {int(number) for number in re.findall(r"\d+", told)} == {status.value for status in ExitStatus}
