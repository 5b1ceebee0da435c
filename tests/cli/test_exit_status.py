"""Exit statuses: refused, failed and stopped runs differ, and the documentation's table has every one."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NoReturn

import click
import pytest
from support.commands import Command

from seu_bench.cli import main as command_line
from seu_bench.errors import ExitStatus

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
RUN = ("run", "--strategy", "naive", "--protocol", "smoke")


def numbers_in(page: str) -> list[int]:
    """First column of the table below the page's heading "Exit statuses"."""
    section = (REFERENCE / page).read_text(encoding="utf-8").partition("## Exit statuses")[2].partition("\n## ")[0]
    return [int(number) for row in re.findall(r"^\| ([\d, ]+) \|", section, re.MULTILINE) for number in row.split(",")]


def test_diverged_run_has_failed(command: Command, tmp_path: Path) -> None:
    """A loss that is not finite is no typing error; the record says that the run failed."""
    answer = command(*RUN, "-o", "learning_rate=1e20", "-o", "clip_norm=1e30", "--results", tmp_path)
    assert answer.status == ExitStatus.FAILED == 3, answer
    assert answer.err.startswith("error: ") or "\nerror: " in answer.err
    assert "the loss became" in answer.err and "Traceback" not in answer.err
    assert re.search("failed +", command("runs", "--results", tmp_path).out)


@pytest.mark.parametrize(
    ("fault", "status"),
    [("build", ExitStatus.FAILED), ("raise", ExitStatus.FAILED), ("interrupt", ExitStatus.INTERRUPTED)],
)
@pytest.mark.usefixtures("tiny")
def test_strategy_that_ends_a_run(command: Command, tmp_path: Path, fault: str, status: ExitStatus) -> None:
    """Whatever a stranger's strategy does, it is no refusal and no traceback."""
    asked = ("--strategy", "tiny", "--protocol", "smoke", "--limit", 8, "-o", f"fault={fault}", "--results", tmp_path)
    answer = command("run", *asked)
    assert answer.status == status, answer.err
    assert "Traceback" not in answer.err


def test_defect(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Not Python's own 1, which would mean that a check failed."""

    def fail() -> NoReturn:
        raise KeyError("nobody foresaw it")

    monkeypatch.setattr(command_line, "cli", click.Command("x", callback=fail))
    monkeypatch.setattr(sys, "argv", ["seu-bench"])
    with pytest.raises(SystemExit) as left:
        command_line.main()
    assert left.value.code == ExitStatus.DEFECT == 70
    told = capsys.readouterr().err
    assert "KeyError: 'nobody foresaw it'" in told
    assert told.endswith("please report it with these lines\n")


def test_table_has_every_status() -> None:
    """The reference, and the help of the command."""
    assert numbers_in("command_line.md") == [status.value for status in ExitStatus]
