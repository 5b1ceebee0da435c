"""Rows whose options were tuned: the mark, the column and the table of what the tuning cost, in every form."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from support.board_records import leaderboards, writer

from seu_bench.results.comparison import compare
from seu_bench.results.formats import notes, to_csv
from seu_bench.results.leaderboard import parse_view
from seu_bench.results.record_metrics import compute_metrics
from seu_bench.results.record_parts import TuningRecord


def tuning(**fields: Any) -> TuningRecord:
    known = {"id": "few-quick-a", "sha256": "ab" * 32, "method": "first-tasks:3", "seeds": (100, 101), "runs": 8}
    return TuningRecord(**{**known, "image_passes": 6_000_000, "cpu_seconds": 90.0, **fields})


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A row of three seeds that was tuned, one of two that was not."""
    put = writer(tmp_path)
    for seed in range(3):
        put(seed, 0.7, strategy="a", tuned=tuning())
    for seed in range(2):
        put(seed, 0.5, strategy="b")
    return tmp_path


def test_marked_with_cost(results: Path) -> None:
    """A mark behind the label, and a table with the total and the share of each run of the row."""
    (board,) = leaderboards(results)
    assert [row[1] for row in board.cells()] == ["a †", "b"]
    (row, other) = board.document()["rows"]
    assert row["tunings"][0]["image_passes_per_run"] == 2_000_000
    assert other["tunings"] == []
    assert [row["tuned"] for row in csv.DictReader(to_csv([board]).splitlines())] == ["first-tasks:3", ""]
    assert not any("whole-stream" in line for line in notes(board))


def test_column(results: Path) -> None:
    """The passes are a metric, so that budgets know them; without a tuned row there is no column."""
    put = writer(results)
    record = put(9, 0.7, strategy="a", tuned=tuning(), benchmark="other")
    assert compute_metrics(record)["tuning_passes"] == 6_000_000
    assert compute_metrics(record.model_copy(update={"tuned": None}))["tuning_passes"] is None
    for board in leaderboards(results):
        assert "tuning_passes" not in board.columns  # these records hold no such metric
    for seed in range(3):
        put(seed, 0.7, strategy="a", tuned=tuning(), benchmark="new", metrics={"tuning_passes": 6_000_000})
        put(seed, 0.5, strategy="b", benchmark="new", metrics={"tuning_passes": None})
        put(seed, 0.5, strategy="b", benchmark="none", metrics={"tuning_passes": None})
    (board,) = leaderboards(results, "new")
    assert board.heading("tuning_passes") == "tuning (M passes)"
    assert [row.mean("tuning_passes") for row in board.rows] == [6_000_000, None]
    kept = parse_view(["tuning_passes=7e6"])(board)
    assert [row.configuration for row in kept.rows] == ["a"]
    (board,) = leaderboards(results, "none")
    assert "tuning_passes" not in board.columns


def test_whole_stream_is_named(results: Path) -> None:
    put = writer(results)
    put(0, 0.9, strategy="c", tuned=tuning(method="whole-stream"), benchmark="unfair")
    (board,) = leaderboards(results, "unfair")
    assert any("whole-stream, which uses validation images of all tasks" in line for line in notes(board))


def test_runs_on_validation_images_are_compared_with_no_others(results: Path) -> None:
    """Their fingerprint is another one, as the stream makes it."""
    put = writer(results)
    one = put(0, 0.9, strategy="c")
    other = put(0, 0.9, strategy="d", evaluation="validation", data_fingerprint="c3" * 32)
    with pytest.raises(Exception, match="data"):
        compare(one, other)
    assert "measured on validation images" in " ".join(leaderboards(results)[0].excluded)
