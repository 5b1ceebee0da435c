"""The order of rows: by accuracy, references last; ranks, also where seeds differ; what stands for memory; sorting."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from support.board_records import Put, leaderboards, writer
from support.commands import Command

from seu_bench.errors import OptionError
from seu_bench.metrics import mixed_score
from seu_bench.results.formats import notes, to_markdown
from seu_bench.results.leaderboard import Leaderboard, in_order_of, not_dominated, pareto_front, parse_metric, size_axis


@pytest.fixture
def put(tmp_path: Path) -> Put:
    """Write a record with plausible metrics; keywords change fields."""
    return writer(tmp_path)


def sized(acc: float, parameters: int | None, memory: int | None) -> dict[str, Any]:
    """Metrics of a record; ``None``: not measured."""
    score = None if parameters is None else mixed_score(100 * acc, parameters)
    return {"acc": acc, "params_total": parameters, "memory_bytes": memory, "mixed_score": score}


def strategies(board: Leaderboard) -> list[str]:
    return [row.record.strategy for row in board.rows]


def test_by_accuracy_with_ranks_and_marks(tmp_path: Path, put: Put) -> None:
    """Whatever the front is, not by mixed score, of which the smallest has the highest; equal means, equal ranks."""
    for strategy, acc, parameters in (
        ("dominated_most", 0.8, 9_000_000),
        ("small", 0.6, 1_000),
        ("middle", 0.7, 100_000),
        ("large", 0.9, 5_000_000),
        ("dominated_least", 0.5, 2_000),
        ("as_middle", 0.7, 100_000),
    ):
        put(0, acc, strategy=strategy, parameters=parameters)
    (board,) = leaderboards(tmp_path)
    assert strategies(board) == ["large", "dominated_most", "as_middle", "middle", "small", "dominated_least"]
    assert [row.number for row in board.rows] == [1, 2, 3, 4, 5, 6]
    assert [row[0] for row in board.cells()] == ["● 1", "2", "● 3", "● 3", "● 5", "6"]
    assert [row["rank"] for row in board.table()] == [1, 2, 3, 3, 5, 6]
    assert [row["on_front"] for row in board.table()] == [True, False, True, True, True, False]
    scores = [row.mean("mixed_score") or 0 for row in board.rows]
    assert max(scores) == scores[4]


class TestCommonSeeds:
    """Seeds 3 to 5 are hard: a row that lacks them has a higher mean and is no better."""

    @pytest.fixture
    def board(self, tmp_path: Path, put: Put) -> Leaderboard:
        for seed, hard in enumerate((0.0, 0.01, 0.0, 0.4, 0.41, 0.4)):
            put(seed, 0.9 - hard, strategy="best")
            put(seed, 0.8 - hard + seed / 1000, strategy="second")
            if seed < 3:
                put(seed, 0.85 - hard, strategy="easy", reference=None)
                put(seed, 0.95 - hard, strategy="joint")
        put(0, 0.99, strategy="once")
        (found,) = leaderboards(tmp_path)
        return found

    def test_ranks_and_verdicts(self, board: Leaderboard) -> None:
        """The mean is that of the row's own seeds; one lucky seed is no best, and takes nobody's seeds away."""
        assert strategies(board) == ["once", "easy", "best", "second", "joint"]
        assert [row.rank for row in board.rows] == [None, 2, 1, 3, None]
        assert board.rows[1].mean("acc") == pytest.approx(0.85 - 0.01 / 3)
        assert board.standings("acc") == ["too few seeds", "significant", "best", "significant", None]
        _, others = board.beside_best("acc")
        assert {row.record.strategy: found.pairs for row, found in others.items()} == {
            "once": 1,
            "easy": 3,
            "second": 6,
        }

    def test_equal_seeds_have_none(self, tmp_path: Path, put: Put) -> None:
        put(0, 0.5)
        put(0, 0.4, strategy="other")
        (board,) = leaderboards(tmp_path)
        assert "‡" not in to_markdown(board) and [row.rank for row in board.rows] == [1, 2]


def test_references_are_no_part_of_the_contest(tmp_path: Path, put: Put) -> None:
    """However good they are, and whatever they lack: they come last, and take no learner off the front."""
    for seed, acc in enumerate((0.70, 0.71, 0.73)):
        put(seed, strategy="joint", metrics=sized(acc + 0.2, 1_000, None))
        put(seed, strategy="mine", reference="a control", metrics=sized(acc + 0.1, 10, 40))
        put(seed, strategy="best", metrics=sized(acc, 50_000, 200_000))
        put(seed, strategy="other", metrics=sized(acc - 0.1, 60_000, 240_000))
    (board,) = leaderboards(tmp_path)
    assert strategies(board) == ["best", "other", "joint", "mine"]
    assert [row.on_front for row in board.rows] == [True, False, False, False]
    assert board.size == size_axis(board.rows) == "memory_bytes"
    assert board.standings("acc") == ["best", "significant", None, None]
    assert strategies(pareto_front(board, ("acc", "params_total"))) == ["best", "joint", "mine"]


@pytest.mark.parametrize("axes", [("acc", "params_total"), ("acc", "macs", "forgetting")])
def test_front_by_brute_force(tmp_path: Path, put: Put, axes: tuple[str, ...]) -> None:
    """Many rows with equal values among them."""
    generator = random.Random(1)
    for index in range(40):
        acc, parameters = generator.randrange(1, 7) / 10, generator.randrange(1, 7)
        metrics = sized(acc, parameters, None) | {"macs": generator.randrange(5), "forgetting": generator.random()}
        put(0, strategy=f"s{index:02d}", metrics=metrics)
    (board,) = leaderboards(tmp_path)
    points = {row: [(row.mean(axis) or 0) * (1 if axis == "acc" else -1) for axis in axes] for row in board.rows}
    expected = [
        row
        for row, mine in points.items()
        if not any(its != mine and all(a >= b for a, b in zip(its, mine, strict=True)) for its in points.values())
    ]
    assert 0 < len(expected) < 40
    assert not_dominated(board.rows, axes) == expected


def test_numbers_too_large_to_count_with(tmp_path: Path, put: Put) -> None:
    """A stranger's record may hold them: no note, and no failure."""
    put(0, strategy="strange", metrics={"acc": 0.5, "params_total": 1.7e308, "mixed_score": 0.1})
    (board,) = leaderboards(tmp_path)
    assert not any("favours" in line for line in notes(board)) and board.rows[0].on_front


class TestSort:
    def test_by_a_metric(self, tmp_path: Path, put: Put) -> None:
        """The best first by the metric's direction; numbers and marks of the front stay; the unmeasured are last."""
        put(0, 0.9, strategy="large", parameters=9_000_000)
        put(0, 0.5, strategy="small", parameters=1_000)
        put(0, strategy="nothing", metrics={"acc": 0.4})
        (board,) = leaderboards(tmp_path)
        by_size = in_order_of(board, "params_total")
        assert strategies(by_size) == ["small", "large", "nothing"]
        assert [row.number for row in by_size.rows] == [2, 1, 3]
        assert by_size.views == ("sorted by parameters (M), the lowest first",)
        assert strategies(in_order_of(board, "mixed_score")) == ["small", "large", "nothing"]
        assert in_order_of(board, "acc").views == ("sorted by acc (%), the highest first",)

    def test_from_the_command_line(self, command: Command, tmp_path: Path, put: Put) -> None:
        put(0, 0.9, strategy="large", parameters=9_000_000)
        put(0, 0.5, strategy="small", parameters=1_000)
        answer = command("leaderboard", "--results", tmp_path, "--sort", "params", "--format", "csv")
        assert [line.split(",")[4:8] for line in answer.out.splitlines()[1:]] == [
            ["2", "2", "True", "small"],
            ["1", "1", "True", "large"],
        ]

    def test_unknown(self) -> None:
        with pytest.raises(OptionError, match="did you mean 'mixed_score'") as caught:
            parse_metric("--sort", "mixed_scor")
        assert "acc" in str(caught.value.remedy)
