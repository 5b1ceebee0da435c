"""What cannot be read does not count as empty, and what is no file is neither read nor replaced."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.board_records import leaderboards, writer
from support.commands import Command
from support.plain_user import plain_user

from seu_bench.results.record import runs_folder

Break = Callable[[Path], None]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A results folder with two records that can be ranked."""
    folder = tmp_path / "results"
    write = writer(folder)
    for seed in (0, 1):
        write(seed=seed)
    return folder


@pytest.mark.parametrize(
    "asked",
    [("runs",), ("leaderboard",), ("report",), ("show", "x"), ("compare", "x", "y"), ("verify", "x"),
     ("sweep", "--protocol", "smoke", "--seeds", "0", "--dry-run")],
    ids=lambda asked: asked[0],
)  # fmt: skip
@pytest.mark.parametrize("part", [".", "runs"])
def test_unreadable_folder(command: Command, results: Path, part: str, asked: tuple[str, ...]) -> None:
    """Every command says which folder it is and why, with exit status 2, and changes nothing."""
    folder = results / part
    command(*asked, "--results", results)  # imports what it needs
    before = sorted(path.name for path in results.rglob("*"))
    with plain_user(results):
        folder.chmod(0)
        answer = command(*asked, "--results", results)
        folder.chmod(0o755)
    assert (answer.status, answer.out) == (2, "")
    assert answer.err.startswith("error: ") and "Permission denied" in answer.err
    assert str(folder if part == "runs" else results) in answer.err
    assert sorted(path.name for path in results.rglob("*")) == before


def test_unreadable_run_is_listed(command: Command, results: Path) -> None:
    """One folder that cannot be read is a line of its own; the others are shown."""
    first, second = sorted(runs_folder(results).iterdir())
    assert command("runs", "--results", results).status == 0
    with plain_user(results):
        first.chmod(0)
        answer = command("runs", "--results", results)
        first.chmod(0o755)
    assert answer.status == 0
    told = {line.split()[0]: line for line in answer.out.splitlines() if line.strip().startswith("run-")}
    assert "unreadable" in told[first.name] and "Permission denied" in told[first.name]
    assert "finished" in told[second.name]


def test_report_does_not_shrink_to_nothing(command: Command, results: Path) -> None:
    """A page is not replaced by an empty one."""
    assert command("report", "--top", 0, "--results", results).status == 0
    page = results / "report.html"
    before = page.read_bytes()
    for folder in runs_folder(results).iterdir():
        (folder / "record.json").write_text("{}")
    answer = command("report", "--top", 0, "--results", results)
    assert answer.status == 2
    assert "no record can be reported" in answer.err
    assert page.read_bytes() == before


@pytest.mark.parametrize("kind", ["pipe", "link", "device"])
def test_record_that_is_no_file(command: Command, results: Path, kind: str) -> None:
    """It counts as unreadable and is named; nobody waits for it."""
    first = sorted(runs_folder(results).iterdir())[0] / "record.json"
    first.unlink()
    if kind == "pipe":
        os.mkfifo(first)
    else:
        first.symlink_to("/dev/zero" if kind == "device" else results)
    answer = command("runs", "--format", "json", "--results", results)
    assert answer.status == 0
    assert answer.out.count('"unreadable"') == 1
    answer = command("leaderboard", "--format", "json", "--results", results)
    assert answer.status == 0
    assert '"records": 1' in answer.out
    (board,) = leaderboards(results)
    assert [first.parent.name in line for line in board.excluded] == [True]


@pytest.mark.parametrize("kind", ["pipe", "link", "folder", "device"])
def test_output_is_a_regular_file(command: Command, results: Path, tmp_path: Path, kind: str) -> None:
    """Nothing else is replaced, and nothing waits for a reader."""
    path = tmp_path / "output"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(tmp_path / "elsewhere")
    elif kind == "folder":
        path.mkdir()
    else:
        path = Path("/dev/null")
    mode = path.lstat().st_mode
    answer = command("report", "--top", 0, "--output", path, "--results", results)
    assert answer.status == 2
    assert "it is not a regular file" in answer.err and str(path) in answer.err
    assert path.lstat().st_mode == mode
    assert not (tmp_path / "elsewhere").exists()
