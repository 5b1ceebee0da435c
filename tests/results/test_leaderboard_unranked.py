"""Runs that are never ranked can be looked at: in tables of their own, in no file, with no best row."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.board_records import Put, leaderboards, writer
from support.commands import Command

from seu_bench.results.building import read_leaderboards, unranked_leaderboards
from seu_bench.results.comparison import compare_over_benchmarks
from seu_bench.results.formats import to_csv, to_latex, to_markdown
from seu_bench.results.leaderboard import Leaderboard
from seu_bench.results.record_files import read_records

#: Fields of records that are never ranked.
NEVER = (
    {"ranked": False, "protocol": "smoke"},
    {"limit": 100},
    {"limit": 200},
    {"synthetic": True},
    {"first_tasks": 2},
    {"first_tasks": 3},
    {"evaluation": "validation"},
    {"limit": 100, "synthetic": True},
)


@pytest.fixture
def put(tmp_path: Path) -> Put:
    """Write a record with plausible metrics; keywords change fields."""
    return writer(tmp_path)


def unranked(results: Path) -> tuple[Leaderboard, ...]:
    """The unranked leaderboards of a results folder."""
    return unranked_leaderboards(read_leaderboards(results).records)


def test_what_cannot_be_compared_is_never_in_one_table(tmp_path: Path, put: Put) -> None:
    for fields in NEVER:
        for seed in range(2):
            put(seed, **fields)
    put(0)
    boards = unranked(tmp_path)
    assert len(boards) == len(NEVER) == len({board.name for board in boards})
    assert [board.records for board in boards] == [2] * len(NEVER)
    assert all(board.unranked and board.unranked in board.title and "NOT RANKED" in board.title for board in boards)
    (ranked,) = leaderboards(tmp_path)
    assert (ranked.records, ranked.unranked) == (1, None)
    assert "NOT RANKED" not in ranked.title


@pytest.mark.parametrize("status", ["running", "failed", "interrupted"])
def test_unfinished_runs_are_in_no_table(tmp_path: Path, put: Put, status: str) -> None:
    put(0, status=status, ranked=False)
    put(1, status=status)
    assert unranked(tmp_path) == ()
    build = read_leaderboards(tmp_path)
    assert build.excluded(unranked=True) == build.excluded() != []


def test_nothing_is_the_best(tmp_path: Path, put: Put) -> None:
    for seed in range(3):
        put(seed, 0.4 + seed / 100, limit=50)
        put(seed, 0.9 + seed / 100, limit=50, strategy="ewc")
        put(seed, 0.95, limit=50, strategy="joint")
    (board,) = unranked(tmp_path)
    assert [row.configuration for row in board.rows] == ["ewc", "naive", "joint"]
    assert [row.number for row in board.rows] == [1, 2, 3]
    assert board.standings("acc") == [None] * 3 and not any(row.on_front for row in board.rows)
    assert board.missing is None
    assert not any(mark in text for row in board.cells() for text in row for mark in "*≈?●")
    latex = to_latex(board)
    assert "NOT RANKED" in latex and r"\mathbf" not in latex and "Bold" not in latex
    page = to_markdown(board)
    assert page.startswith("# cifar10, version 1, protocol quick, NOT RANKED (images were limited with --limit")
    assert "highest mean" not in page
    assert "limit: 50" in to_csv([board])
    assert {row["on_front"] for row in board.document()["rows"]} == {False}
    assert "unranked" not in to_csv(leaderboards(tmp_path)).partition("\n")[0]


def test_ranks_over_benchmarks_leave_them_out(tmp_path: Path, put: Put) -> None:
    for benchmark in ("one", "two"):
        for strategy in ("naive", "ewc"):
            put(0, limit=50, benchmark=benchmark, strategy=strategy)
    boards = unranked(tmp_path)
    assert len(boards) == 2 and compare_over_benchmarks(boards) == []


class TestCommand:
    def test_the_message_names_the_option(self, tmp_path: Path, put: Put, command: Command) -> None:
        put(0, ranked=False, protocol="smoke")
        put(0, ranked=False, protocol="smoke", status="failed")
        answer = command("leaderboard", "--results", tmp_path)
        assert "no record can be ranked" in answer.out
        told = f"seu-bench leaderboard --unranked --results {tmp_path} shows 1 finished run of these, not ranked"
        assert told in answer.out
        for form in ("latex", "md", "csv"):  # an empty file would say nothing
            nothing = command("leaderboard", "--results", tmp_path, "--format", form)
            assert (nothing.out, nothing.err) == ("", answer.out)
        shown = command("leaderboard", "--results", tmp_path, "--unranked")
        assert "NOT RANKED" in shown.out and "--unranked shows" not in shown.out
        assert not list(tmp_path.glob("leaderboards/*"))

    def test_files_are_those_of_ranked_runs(self, tmp_path: Path, put: Put, command: Command) -> None:
        put(0)
        command("leaderboard", "--results", tmp_path)
        before = {path.name: path.read_bytes() for path in (tmp_path / "leaderboards").iterdir()}
        put(1, limit=50)
        assert command("leaderboard", "--results", tmp_path, "--unranked", "--format", "json").status == 0
        after = {path.name: path.read_text() for path in (tmp_path / "leaderboards").iterdir()}
        assert after.keys() == before.keys()
        assert not any("NOT RANKED" in text for text in after.values())
        refused = command("leaderboard", "--results", tmp_path, "--unranked", "--ranks")
        assert refused.status == 2 and "ranked runs alone" in refused.err

    def test_report(self, tmp_path: Path, put: Put, command: Command) -> None:
        put(0, ranked=False, protocol="smoke")
        asked = ("report", "--results", tmp_path, "--figures", 0)
        answer = command(*asked, "--output", tmp_path / "a.html")
        assert "report --unranked" in answer.out and "NOT RANKED" not in (tmp_path / "a.html").read_text()
        assert command(*asked, "--output", tmp_path / "b.html", "--unranked").status == 0
        page = (tmp_path / "b.html").read_text()
        assert "NOT RANKED" in page and "Records in no group" not in page and "Beside the paper" not in page
        assert len(list(read_records(tmp_path))) == 1
