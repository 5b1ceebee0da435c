"""References in leaderboards: shown apart, in no contest, with what they are and what is missing."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pandas
import pytest
from support.board_records import Put, leaderboards, writer
from support.commands import Command
from support.shown import rendered

import seu_bench
from seu_bench.cli.tables import leaderboard_table
from seu_bench.results.building import make_leaderboards
from seu_bench.results.formats import to_markdown
from seu_bench.results.leaderboard import Leaderboard, in_order_of, pareto_front
from seu_bench.results.reference_rows import REFERENCE_ROWS


@pytest.fixture
def put(tmp_path: Path) -> Put:
    return writer(tmp_path)


@pytest.fixture
def board(tmp_path: Path, put: Put) -> Leaderboard:
    """Two learners, and three references that are better and smaller than both; two of them in records of today."""
    for seed in range(3):
        put(seed, 0.7 + seed / 100, strategy="small", parameters=1_000)
        put(seed, 0.8 + seed / 100, strategy="large", parameters=9_000)
        put(seed, 0.9 + seed / 100, strategy="joint", parameters=100)
        put(seed, 0.6, strategy="linear", parameters=10, reference=REFERENCE_ROWS["linear"])
        put(seed, 0.95, strategy="oracle", parameters=1, reference="knows all answers")
    return leaderboards(tmp_path)[0]


def on_terminal(board: Leaderboard, most: int | None = None) -> str:
    """On one line: notes are folded at the width of the tables."""
    return " ".join(rendered(leaderboard_table(board, most), width=200).split())


def names(board: Leaderboard) -> list[str]:
    return [row.configuration for row in board.rows]


def test_they_come_last_and_take_nothing_away(board: Leaderboard) -> None:
    """Neither from the front nor the star of the best; old records are known by name."""
    assert names(board) == ["large", "small", "oracle", "joint", "linear"]
    assert [row.on_front for row in board.rows] == [True, True, False, False, False]
    assert board.standings("acc") == ["best", "significant", None, None, None]
    assert board.standings("mixed_score")[2:] == [None] * 3
    assert [row.configuration for row in board.references] == ["oracle", "joint", "linear"]


def test_views_keep_them_apart(board: Leaderboard) -> None:
    """A Pareto front is that of the learners; another order has them at its end."""
    assert names(pareto_front(board)) == names(board)
    assert "0 dominated rows excluded" in pareto_front(board).views[0]
    assert names(in_order_of(board, "params_total")) == ["small", "large", "oracle", "linear", "joint"]


def test_marks_and_lines(board: Leaderboard) -> None:
    """Page and terminal say of each what it is; no star stands before any of their values."""
    page = to_markdown(board)
    main, _, rest = page.partition("## References")
    below = rest.partition("## Confidence")[0]
    assert "| joint" not in main and "| large" in main and "* " in main
    assert "| joint" in below and "| large" not in below and "\\*" not in below
    assert "knows all answers" in main and REFERENCE_ROWS["joint"] in main
    shown = board.cells(["acc"])
    assert [row[0] for row in shown] == ["● 1", "● 2", "○", "○", "○"]
    assert all(row[3][0].isdigit() for row in shown[2:])
    said = "○ references, which come last and are not ranked: oracle: knows all answers"
    assert said in on_terminal(board)


def test_no_number_of_rows_hides_them(board: Leaderboard) -> None:
    """With one row asked for they are still there, with their own marks."""
    assert [row[1] for row in board.cells(["acc"], 1)] == ["large", "oracle", "joint", "linear"]
    assert [row[3][:2] for row in board.cells(["acc"], 1)] == ["* ", "95", "91", "60"]
    assert "1 of 2 learners; the leaderboard's files" in on_terminal(board, 1)


def test_missing_ones_are_named_with_a_command(board: Leaderboard, put: Put, tmp_path: Path) -> None:
    """In page and JSON, also in a view; nothing is said where all are there."""
    wanted = "seu-bench sweep --strategy independent,cumulative --benchmark cifar10 --protocol quick --seeds 0-2"
    wanted += f" --results {tmp_path}"
    page = to_markdown(pareto_front(board))
    assert f"references that are missing here: independent, cumulative; make them: {wanted}" in page
    assert board.document()["missing_references"] == {"names": ("independent", "cumulative"), "command": wanted}
    for strategy in ("independent", "cumulative"):
        put(0, strategy=strategy)
    (complete,) = leaderboards(tmp_path)
    assert "references that are missing" not in to_markdown(complete)
    assert complete.document()["missing_references"] is None


def test_files_and_frames_have_a_column(board: Leaderboard, tmp_path: Path) -> None:
    """What the row is; blank for a learner. A data frame of records has it for old records too."""
    _, path = make_leaderboards(tmp_path).paths
    rows = {row["strategy"]: row["reference"] for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines())}
    assert rows == {
        "small": "", "large": "", "joint": REFERENCE_ROWS["joint"], "linear": REFERENCE_ROWS["linear"],
        "oracle": "knows all answers",
    }  # fmt: skip
    frame: pandas.DataFrame = seu_bench.load_records(tmp_path)
    assert set(frame.loc[frame["strategy"] == "joint", "reference"]) == {REFERENCE_ROWS["joint"]}
    assert frame.loc[frame["strategy"] == "small", "reference"].isna().all()
    found = {row["strategy"]: row["reference"] for row in json.loads(json.dumps(board.document()))["rows"]}
    assert found["small"] is None and found["joint"] == REFERENCE_ROWS["joint"]


def test_one_run_says_so(command: Command, put: Put, tmp_path: Path) -> None:
    """``show`` and ``compare``."""
    put(strategy="joint", task_order=(0,), task_names=("a",))
    put(strategy="naive", task_order=(0,), task_names=("a",))
    assert REFERENCE_ROWS["joint"] in command("show", "run-001", "--results", tmp_path).out
    assert REFERENCE_ROWS["joint"] not in command("show", "run-002", "--results", tmp_path).out
    answer = command("compare", "run-001", "run-002", "--results", tmp_path)
    assert f"1: run-001 (a reference: {REFERENCE_ROWS['joint']})\n2: run-002\n" in answer.out
