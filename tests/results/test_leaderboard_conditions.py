"""What a table says of how its rows were run: options that all share, others in a row's name, unequal memories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.board_records import Put, leaderboards, writer
from support.commands import Command

from seu_bench.results.formats import to_latex, to_markdown
from seu_bench.results.leaderboard import Leaderboard
from seu_bench.results.report import Limits, write_report

#: What the protocol says, of all strategies and of one.
PROTOCOL = {
    "training": {"epochs": 8, "batch_size": 32},
    "search": {"epochs": 6},
    "model": {"backbone": None, "width": 0.25},
    "strategies": {"hat": {"epochs": 200}},
}


@pytest.fixture
def put(tmp_path: Path) -> Put:
    """Write a record with plausible metrics; keywords change fields."""
    write = writer(tmp_path)
    return lambda *args, **fields: write(*args, **({"protocol_settings": PROTOCOL} | fields))


def options(**given: Any) -> dict[str, Any]:
    """Fields of a record whose run was given these options; ``rate`` has a default."""
    return {"options": {"epochs": None, "rate": 0.5, **given}, "given_options": tuple(given)}


def names(board: Leaderboard) -> set[str]:
    return {row.configuration for row in board.rows}


def board_of(folder: Path) -> Leaderboard:
    (board,) = leaderboards(folder)
    return board


class TestShared:
    def test_in_every_table(self, tmp_path: Path, put: Put, command: Command) -> None:
        """Rows whose strategy has no such option do not matter."""
        put(**options(epochs=1), precision="bf16")
        put(strategy="ewc", **options(epochs=1, rate=0.7), precision="bf16")
        put(strategy="ewc", **options(epochs=1, rate=0.9), precision="bf16")
        put(strategy="nearest_mean", precision="bf16", given_options=())
        board = board_of(tmp_path)
        assert board.changed == {"epochs": 1, "precision": "bf16"}
        said = "options changed from the protocol, in every row that has them: epochs=1, precision=bf16"
        answer = command("leaderboard", "--results", tmp_path).out
        page = write_report(tmp_path, limits=Limits(figures=0)).page.read_text(encoding="utf-8")
        for text in (" ".join(answer.split()), to_markdown(board), board._repr_html_(), page):
            assert said in text
        assert said[1:] in to_latex(board).partition(r"\label")[0]
        (document,) = json.loads(command("leaderboard", "--results", tmp_path, "--format", "json").out)
        assert document["changed"] == board.changed
        assert "ewc (rate=0.7, precision=bf16)" in names(board)

    def test_only_what_differs_from_the_protocol(self, tmp_path: Path, put: Put) -> None:
        """No changes: a default, what the protocol says, also for a strategy alone, and what its tuning chose."""
        tuned = {"id": "x", "sha256": "0" * 64, "method": "first-tasks:3", "runs": 1, "image_passes": 1}
        put(**options(epochs=8))
        put(strategy="hat", options={"epochs": 200, "rate": 0.5}, given_options=())
        put(strategy="ewc", options={"rate": 0.9}, given_options=(), tuned=tuned | {"options": {"rate": 0.9}})
        board = board_of(tmp_path)
        assert board.changed == {} and names(board) == {"naive", "hat", "ewc"}
        assert "options changed" not in to_markdown(board)

    def test_what_not_all_share_is_in_the_name(self, tmp_path: Path, put: Put) -> None:
        """Also where each strategy has one row only, which nothing tells apart."""
        put(**options(epochs=1))
        put(strategy="ewc", **options())
        put(strategy="seu", searcher="mdl", searcher_options={"epochs": 2}, given_options=("searcher.epochs",))
        board = board_of(tmp_path)
        assert names(board) == {"naive (epochs=1)", "ewc", "seu + mdl"}
        assert board.changed == {"searcher.epochs": 2}

    def test_older_records(self, tmp_path: Path, put: Put) -> None:
        """They do not say what was given: what the protocol decides is known, other options may be defaults."""
        put(options={"epochs": 1, "rate": 0.7})
        put(strategy="ewc", options={"epochs": 1, "batch_size": 32})
        assert board_of(tmp_path).changed == {"epochs": 1}

    def test_foreign_records(self, tmp_path: Path, put: Put) -> None:
        """Settings may be anything."""
        put(options={"epochs": [1]}, given_options=("epochs",), protocol_settings={"training": 3, "strategies": [1]})
        assert board_of(tmp_path).changed == {"epochs": [1]}


class TestMemories:
    def test_unequal_ones_are_marked(self, tmp_path: Path, put: Put) -> None:
        """By whatever name a method has the option; those without one are not."""
        put(strategy="icarl", options={"memory": 519})
        put(strategy="replay", options={"mem_size": 200})
        put(strategy="gem", options={"patterns_per_experience": 40}, task_order=(0, 1, 2, 3, 4))
        put()
        board = board_of(tmp_path)
        assert names(board) == {"icarl (519 images)", "replay (200 images)", "gem (200 images)", "naive"}
        said = "memories are not equal: rows keep 200 or 519 images"
        assert said in to_markdown(board) and said[1:] in to_latex(board).partition(r"\label")[0]

    def test_names_stay_unique(self, tmp_path: Path, put: Put) -> None:
        """Two ways to keep as many images, and what is no number."""
        put(strategy="gem", options={"patterns_per_experience": 40}, task_order=(0, 1, 2, 3, 4))
        put(strategy="gem", options={"memory": 200, "patterns_per_experience": None})
        put(strategy="gem", options={"memory": 100})
        put(strategy="odd", options={"memory": "few"})
        put(strategy="odd", options={"memory": "many"})
        assert names(board_of(tmp_path)) == {
            "gem (patterns_per_experience=40, 200 images)",
            "gem (200 images)",
            "gem (100 images)",
            "odd (memory=few)",
            "odd (memory=many)",
        }

    def test_equal_ones_are_not(self, tmp_path: Path, put: Put) -> None:
        put(strategy="icarl", options={"memory": 200})
        put(strategy="replay", options={"mem_size": 200})
        board = board_of(tmp_path)
        assert names(board) == {"icarl", "replay"} and "memories" not in to_markdown(board)
