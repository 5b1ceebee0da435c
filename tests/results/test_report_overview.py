"""The summary: the best of each benchmark and its cost, and all configurations over the benchmarks of a protocol."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.report_records import published, put, put_all

from seu_bench.results.building import read_leaderboards
from seu_bench.results.comparison import compare_over_benchmarks
from seu_bench.results.report.page.overview import MOST_ROWS, Overview, headline_of, overviews, value


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Three benchmarks, one without ``ewc``, another with a configuration that the others have not."""
    put_all(tmp_path)
    for benchmark, strategies in (("second", ("naive", "seu", "pnn", "joint")), ("third", ("naive", "seu", "pnn"))):
        for strategy in strategies:
            for seed in (0, 1, 2):
                put(tmp_path, published(strategy, seed), run_id=f"{benchmark}{strategy}{seed}", benchmark=benchmark)
    put(tmp_path, published("naive", 0), run_id="wide", benchmark="third", options={"width": 32})
    return tmp_path


def overview_of(results: Path) -> Overview:
    boards = read_leaderboards(results).boards
    (found,) = overviews(boards, compare_over_benchmarks(boards))
    return found


def test_headline(tmp_path: Path) -> None:
    """The most accurate that competes, which others are as good, the least, and references apart."""
    (board,) = read_leaderboards(put_all(tmp_path)).boards
    found = headline_of(board)
    assert found.best is not None and found.best.record.strategy == "seu"
    others, standings = board.rows, board.standings("acc")
    alike = {row for row, said in zip(others, standings, strict=True) if said == "not significant"}
    assert set(found.alike) == alike and not found.untested
    assert [row.record.strategy for row in found.references] == ["joint"]
    assert found.smallest is None or found.smallest.on_front


def test_headline_of_few_seeds(tmp_path: Path) -> None:
    """Nothing is said of significance."""
    (board,) = read_leaderboards(put_all(tmp_path, seeds=[0])).boards
    found = headline_of(board)
    assert not found.alike and len(found.untested) == len(board.rows) - len(board.references) - 1


def test_headline_without_accuracy(tmp_path: Path) -> None:
    """There is no best."""
    put(tmp_path, published("naive", 0), metrics={})
    (board,) = read_leaderboards(tmp_path).boards
    assert headline_of(board).best is None and headline_of(board).smallest is None


def test_values(tmp_path: Path) -> None:
    """As in the leaderboard, on one line; a size that does not vary has no deviation."""
    (board,) = read_leaderboards(put_all(tmp_path, ["naive"])).boards
    (row,) = board.rows
    summary = row.summary("acc")
    assert summary is not None and summary.std is not None
    assert value(row, "acc") == f"{100 * summary.mean:.2f}\u00a0±\u00a0{100 * summary.std:.2f}"
    assert value(row, "params_total") == f"{(row.mean('params_total') or 0) / 1e6:,.3f}"
    assert value(row, "tuning_passes") == "-"


def test_rows_and_order(results: Path) -> None:
    """Those with ranks first, then those on more benchmarks, references last; a gap where none was run."""
    found = overview_of(results)
    assert [board.benchmark for board in found.boards] == ["second", "split_digits", "third"]
    names = [row.name for row in found.rows]
    ranked = [row for row in found.rows if row.rank is not None]
    assert found.rows[: len(ranked)] == tuple(ranked) and len(ranked) >= 2
    assert [row.rank.mean for row in ranked if row.rank] == sorted(row.rank.mean for row in ranked if row.rank)
    assert names[-1] == "joint" and found.rows[-1].is_reference and found.rows[-1].rank is None
    ewc = next(row for row in found.rows if row.name == "ewc")
    assert [own is None for own in ewc.rows] == [True, False, True]
    assert found.more == (0, 0)


def test_table(results: Path) -> None:
    """Every row has a cell for each heading: means and deviations of accuracy, forgetting and size, and seeds."""
    found = overview_of(results)
    head, *rows = found.table()
    assert {len(row) for row in rows} == {len(head)} == {4 + 3 * 7}
    naive = next(row for row in rows if row[0] == "naive")
    place = head.index("split_digits acc (%)")
    (own,) = [row for row in found.boards[1].rows if row.record.strategy == "naive"]
    assert naive[place : place + 2] == value(own, "acc").split("\u00a0±\u00a0")
    assert naive[head.index("split_digits seeds")] == "3" and naive[1] == "no"


def test_marks(results: Path) -> None:
    """Those of the leaderboard."""
    found = overview_of(results)
    marks = {
        row.name: [found.mark(b, own) if own else None for b, own in zip(found.boards, row.rows, strict=True)]
        for row in found.rows
    }
    assert marks["joint"][:2] == ["○ ", "○ "]
    assert sum("*" in (mark or "") for row in marks.values() for mark in row) == 3


def test_many_configurations_are_cut(tmp_path: Path) -> None:
    """And it is said how many."""
    for number in range(MOST_ROWS + 3):
        for benchmark in ("a", "b"):
            put(
                tmp_path,
                published("naive", 0),
                run_id=f"{benchmark}{number}",
                benchmark=benchmark,
                options={"width": number + 1},
            )
    found = overview_of(tmp_path)
    assert len(found.rows) == MOST_ROWS and found.more == (3, 0)


def test_one_benchmark_has_no_table(tmp_path: Path) -> None:
    """Its leaderboard says it all."""
    boards = read_leaderboards(put_all(tmp_path)).boards
    assert overviews(boards, []) == []
