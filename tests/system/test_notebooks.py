"""What a notebook shows of the values of ``import seu_bench``: tables, and one line where there are no tables."""

from __future__ import annotations

from pathlib import Path

import pytest

import seu_bench
from seu_bench.errors import OptionError
from seu_bench.results import Record, read_record
from seu_bench.results.leaderboard import Leaderboards
from seu_bench.results.record import record_path

PUBLISHED = Path(__file__).resolve().parents[2] / "results" / "published" / "evidence" / "quick"
EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def boards() -> Leaderboards:
    return seu_bench.leaderboard(PUBLISHED)


def test_leaderboards(boards: Leaderboards) -> None:
    """A table for each benchmark, and all rows as one of pandas; counts of one configuration's means are floats."""
    assert len(boards) == len(list(boards)) == len({board.name for board in boards}) > 1
    page = boards._repr_html_()
    assert page.count("<table>") == len(boards) and "<script" not in page and len(page) < 100_000
    assert all(board.title in page and board._repr_html_() in page for board in boards)
    frame = boards.frame
    assert len(frame) == sum(len(board.rows) for board in boards)
    assert str(frame["params_total_mean"].dtype) == str(frame["acc_std"].dtype) == "float64"
    assert repr(boards[0]) == f"Leaderboard({boards[0].title!r}, {len(boards[0].rows)} rows)"
    assert repr(boards[0].rows[0]).startswith("Row(number=1, ") and len(repr(boards[0].rows[0])) < 200


def test_views(boards: Leaderboards) -> None:
    """As the command's: a benchmark, a budget, the front, another order."""
    name = boards[0].benchmark
    chosen = seu_bench.leaderboard(PUBLISHED, benchmark=name, budgets={"params": 1e6}, pareto=True, sort="params")
    means = [row.mean("params_total") for row in chosen[0].rows if row.reference is None]
    assert len(chosen) == 1 and means == sorted(means, key=lambda mean: mean or 0.0)
    assert 0 < len(chosen[0].rows) < len(boards[0].rows) and max(mean or 0 for mean in means) <= 1e6
    assert "parameters (M) at most 1.000" in chosen._repr_html_()
    for asked in ({"sort": "accc"}, {"budgets": {"acc": 1}}, {"pareto": ["acc", "none"]}):
        with pytest.raises(OptionError):
            seu_bench.leaderboard(PUBLISHED, **asked)  # type: ignore[arg-type]


def test_record(tiny: Path, tmp_path: Path) -> None:
    """Its matrix and metrics; in one short line which it is and how it went. Read again it is the same."""
    record = seu_bench.run("tiny", protocol="smoke", limit=8, results=tmp_path)
    page = record._repr_html_()
    assert "split_digits smoke: tiny, seed 0, finished" in page and page.count("<table>") == 2
    assert f"{record.metrics['params_total']:,}" in page
    assert repr(record) == (
        f"Record(run_id={record.run_id!r}, status='finished', acc={round(record.metrics['acc'] or 0.0, 4)})"
    )
    assert len(str(record)) < 200
    assert read_record(record_path(tmp_path, record.run_id)) == record
    hostile = record.model_copy(update={"strategy": EVIL, "error": EVIL, "metrics": {EVIL: 1.0}, "task_names": (EVIL,)})
    assert "<script" not in hostile._repr_html_()
    empty = Record(run_id="a", status="failed", strategy="s", benchmark="b", benchmark_version=1, protocol="p", seed=0)
    assert "s, seed 0, failed" in empty._repr_html_() and repr(empty) == "Record(run_id='a', status='failed')"
