"""Ranks, marks, budgets and Pareto fronts of leaderboards, by brute force and as they are shown."""

from __future__ import annotations

import csv
import io
import json
import random
from pathlib import Path
from typing import Any

import pytest
from support.board_records import COLUMNS, ODD, Put, leaderboards, writer
from support.commands import Command

from seu_bench.errors import OptionError
from seu_bench.results.formats import to_markdown
from seu_bench.results.leaderboard import SHORT_NAMES, Leaderboard, not_dominated, parse_view


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Leaderboard:
    """Sixty configurations of two seeds, among them equal ones and some without a size."""
    results = tmp_path_factory.mktemp("crowd")
    write, generator = writer(results), random.Random(0)
    for index in range(60):
        acc, parameters = generator.randrange(1, 9) / 10, generator.randrange(1, 9) * 1_000_000
        for seed in range(2):
            fields: dict[str, Any] = {"strategy": f"s{index:02d}", "parameters": parameters}
            if index % 10 == 9:
                fields["metrics"] = {"acc": acc, "mixed_score": acc}
            write(seed, acc + seed / 1000, **fields)
    (board,) = leaderboards(results)
    return board


def strategies(board: Leaderboard) -> list[str]:
    return [row.record.strategy for row in board.rows]


def test_ranks_are_by_accuracy(tmp_path: Path, put: Put) -> None:
    """Not by mixed score, of which the smallest has the highest; equal means, equal ranks."""
    rows = {"dominated_most": (0.8, 9_000_000), "small": (0.6, 1_000), "middle": (0.7, 100_000)}
    rows |= {"large": (0.9, 5_000_000), "dominated_least": (0.5, 2_000), "as_middle": (0.7, 100_000)}
    for strategy, (acc, parameters) in rows.items():
        put(0, acc, strategy=strategy, parameters=parameters)
    (board,) = leaderboards(tmp_path)
    assert strategies(board) == ["large", "dominated_most", "as_middle", "middle", "small", "dominated_least"]
    assert [row.number for row in board.rows] == [1, 2, 3, 4, 5, 6]
    assert [row[0] for row in board.cells()] == ["● 1", "2", "● 3", "● 3", "● 5", "6"]


class TestMarks:
    def test_of_each_kind(self, tmp_path: Path, put: Put) -> None:
        accuracies = {
            "best": (0.90, 0.92, 0.94), "within": (0.91, 0.90, 0.93), "apart": (0.80, 0.82, 0.84), "few": (0.1, 0.1),
        }  # fmt: skip
        for strategy, values in accuracies.items():
            for seed, acc in enumerate(values):
                put(seed, acc, strategy=strategy)
        put(7, 0.2, strategy="elsewhere")
        put(0, strategy="nothing", metrics={})
        (board,) = leaderboards(tmp_path)
        assert strategies(board) == ["best", "within", "apart", "elsewhere", "few", "nothing"]
        said = ["best", "not significant", "significant", "too few seeds", "too few seeds", None]
        assert board.standings("mixed_score") == board.standings("acc") == said
        assert [row["acc_against_best"] for row in board.table()] == said
        assert [row[3][:2] for row in board.cells(["acc"])] == ["* ", "≈ ", "82", "? ", "? ", "-"]
        page = to_markdown(board)
        assert r"\* 92.00 ± 2.00" in page and "paired t-test over the seeds that both have" in page

    def test_more_rows_ask_for_clearer_differences(self, tmp_path: Path, put: Put) -> None:
        """Holm's correction over the rows shown: beside four more rows a difference is significant no longer."""
        for seed, acc in enumerate((0.90, 0.91, 0.92, 0.93)):
            put(seed, acc, strategy="best")
        for name in ("one", "two", "three", "four", "five"):
            for seed, acc in enumerate((0.84, 0.87, 0.85, 0.90)):
                put(seed, acc, strategy=name)
        (board,) = leaderboards(tmp_path)
        alone = board.view([row for row in board.rows if row.record.strategy in ("best", "one")], "two rows")
        assert alone.standings("acc") == ["best", "significant"]
        assert board.standings("acc") == ["best", *["not significant"] * 5]

    def test_only_common_seeds_count(self, tmp_path: Path, put: Put) -> None:
        """Seeds 3 to 5 are hard: a row that lacks them has a higher mean and is no better; one seed is no best."""
        for seed, hard in enumerate((0.0, 0.01, 0.0, 0.4, 0.41, 0.4)):
            put(seed, 0.9 - hard, strategy="best")
            put(seed, 0.8 - hard + seed / 1000, strategy="second")
            if seed < 3:
                put(seed, 0.85 - hard, strategy="easy")
        put(0, 0.99, strategy="once")
        (board,) = leaderboards(tmp_path)
        assert strategies(board) == ["once", "easy", "best", "second"]
        assert [row.rank for row in board.rows] == [None, 2, 1, 3]
        assert board.standings("acc") == ["too few seeds", "significant", "best", "significant"]
        assert [row[2] for row in board.cells()] == ["1 ‡", "3 ‡", "6", "6"]
        said = "‡ lacks some of the seeds 0-5, which most rows have"
        assert said in to_markdown(board) and said in board._repr_html_()


class TestSize:
    @pytest.mark.parametrize(("old", "size", "front"), [(None, "memory_bytes", "nr"), (20_000, "params_total", "r")])
    def test_parameters_stand_for_memory_in_old_records(
        self, tmp_path: Path, put: Put, old: int | None, size: str, front: str
    ) -> None:
        """A buffer of images is no parameter; one row without memory suffices: all are compared by what all have."""
        put(0, strategy="r", metrics={"acc": 0.8, "params_total": 10_000, "memory_bytes": 4_000_000})
        put(0, strategy="n", metrics={"acc": 0.7, "params_total": 20_000, "memory_bytes": 80_000})
        put(0, strategy="sizeless", metrics={"acc": 0.9, "params_total": old and 10**6, "memory_bytes": None})
        (board,) = leaderboards(tmp_path)
        assert board.size == size
        on_front = {row.record.strategy for row in board.rows if row.on_front} - {"sizeless"}
        assert on_front == set(front)
        assert ("memory was not measured for 1 row" in to_markdown(board)) == (old is not None)

    def test_numbers_too_large_to_count_with(self, tmp_path: Path, put: Put) -> None:
        put(0, strategy="strange", metrics={"acc": 0.5, "params_total": 1.7e308, "mixed_score": 0.1})
        assert leaderboards(tmp_path)[0].rows[0].on_front


class TestBudget:
    @pytest.mark.parametrize("limit", [1, 4_000_000, 4_500_000, 1e12])
    def test_by_brute_force(self, crowd: Leaderboard, limit: float) -> None:
        view = parse_view([f"params={limit}"])(crowd)
        assert list(view.rows) == [row for row in crowd.rows if 0 < (row.mean("params_total") or 0) <= limit]
        over = sum((row.mean("params_total") or 0) > limit for row in crowd.rows)
        (told,) = view.views
        assert told.startswith(f"parameters (M) at most {limit / 1e6:,.3f}: ")  # and 6 that were not measured
        assert f": {over + 6} row" in told

    def test_several(self, crowd: Leaderboard) -> None:
        """Of a name given twice the lower one counts."""
        view = parse_view(["params=5e6, seconds=50", "params_total=4e6,params=9e6"])(crowd)
        assert view.rows == parse_view(["params=4e6", "seconds=50"])(crowd).rows
        assert len(view.views) == 2 and 0 < len(view.rows) < len(crowd.rows)

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("parms=5", "did you mean 'params'?"),
            ("acc=0.5", "no such metric"),
            ("", "no such metric"),
            *[(f"params={it}", "is no positive number") for it in ("", "many", "-1", "0", "nan", "inf")],
        ],
    )  # fmt: skip
    def test_faults(self, text: str, said: str) -> None:
        with pytest.raises(OptionError, match="--budget") as caught:
            parse_view([text])
        assert said in str(caught.value) and caught.value.remedy


class TestPareto:
    @pytest.mark.parametrize(
        "axes", ["acc,params_total", "acc,memory", "acc,macs,seconds", "mixed_score,forgetting", "params_total,macs"]
    )
    def test_by_brute_force(self, crowd: Leaderboard, axes: str) -> None:
        metrics = [SHORT_NAMES.get(name, name) for name in axes.split(",")]
        signs = [1 if COLUMNS[metric].higher_is_better else -1 for metric in metrics]
        points = {
            row: [sign * (row.mean(metric) or 0.0) for sign, metric in zip(signs, metrics, strict=True)]
            for row in crowd.rows
            if all(row.mean(metric) is not None for metric in metrics)
        }
        front = [
            row
            for row, mine in points.items()
            if not any(its != mine and all(a >= b for a, b in zip(its, mine, strict=True)) for its in points.values())
        ]
        view = parse_view(pareto=axes)(crowd)
        assert list(view.rows) == front == not_dominated(crowd.rows, metrics)
        (told,) = view.views
        assert f": {len(crowd.rows) - len(front)} rows excluded" in told

    def test_equal_rows_stay(self, tmp_path: Path, put: Put) -> None:
        for strategy, acc in (("a", 0.5), ("b", 0.5), ("c", 0.4)):
            put(0, acc, strategy=strategy)
        assert strategies(parse_view(pareto="")(leaderboards(tmp_path)[0])) == ["a", "b"]

    @pytest.mark.parametrize("text", ["acc", "acc,acc", "acc,params,params_total", "acc,size", ",", "acc,,params"])
    def test_faults(self, text: str) -> None:
        with pytest.raises(OptionError, match="--pareto"):
            parse_view(pareto=text)


def test_sort(tmp_path: Path, put: Put) -> None:
    """The best first by the metric's direction; numbers stay; the unmeasured are last."""
    put(0, 0.9, strategy="large", parameters=9_000_000)
    put(0, 0.5, strategy="small", parameters=1_000)
    put(0, strategy="nothing", metrics={"acc": 0.4})
    (board,) = leaderboards(tmp_path)
    by_size = parse_view(sort="params")(board)
    assert strategies(by_size) == ["small", "large", "nothing"]
    assert [row.number for row in by_size.rows] == [2, 1, 3]
    assert by_size.views == ("sorted by parameters (M), the best first",)
    with pytest.raises(OptionError, match="did you mean 'mixed_score'"):
        parse_view(sort="mixed_scor")


class TestCommand:
    @pytest.fixture
    def results(self, tmp_path: Path, put: Put) -> Path:
        for seed, acc in enumerate((0.5, 0.6, 0.55)):
            put(seed, acc, strategy="small")
            put(seed, acc + 0.3, strategy="large", parameters=20_000_000)
            put(seed, acc - 0.1, strategy=ODD, parameters=30_000_000)
            put(seed, acc, strategy="other", benchmark="pmnist")
        return tmp_path

    def test_views_change_what_is_shown_and_no_file(self, command: Command, results: Path) -> None:
        whole = command("leaderboard", "--results", results)
        files = {path: path.read_bytes() for path in (results / "leaderboards").glob("[a-z]*")}
        assert whole.status == 0 and len(files) == 4
        view = command("leaderboard", "--results", results, "--budget", "memory=25e6", "--benchmark", "cifar10")
        assert "memory (MB) at most 25.000: 2 rows excluded (" in view.out
        table = view.out.partition("95 %")[0]
        assert "small" in table and "large" not in table and "pmnist, version" not in view.out
        front = command("leaderboard", "--pareto", "--results", results, "--benchmark", "cifar10").out
        assert "Pareto front of acc (%) and memory (MB)" in " ".join(front.split())
        assert {path: path.read_bytes() for path in (results / "leaderboards").glob("[a-z]*")} == files

    def test_json_of_several(self, command: Command, results: Path) -> None:
        asked = ("--budget=params=25e6", "--pareto=acc,seconds", "--columns=acc,memory", "--format=json")
        board, _ = json.loads(command("leaderboard", "--results", results, *asked).out)
        assert len(board["views"]) == 2
        assert [row["strategy"] for row in board["rows"]] == ["large", "small"]
        assert [row["against_best"]["acc"] for row in board["rows"]] == ["best", "significant"]
        assert [list(row["metrics"]) for row in board["rows"]] == [["acc", "memory_bytes"]] * 2

    @pytest.mark.parametrize(
        ("form", "said"), [("table", "no row is left"), ("md", "0 configurations"), ("csv", ""), ("json", '"rows": []')]
    )
    def test_nothing_left(self, command: Command, results: Path, form: str, said: str) -> None:
        answer = command("leaderboard", "--results", results, "--budget", "params=1", "--format", form)
        assert (answer.status, said in answer.out) == (0, True)

    def test_texts(self, command: Command, results: Path) -> None:
        """Each form holds all leaderboards, and nothing but them."""
        answer = command("leaderboard", "--results", results, "--format", "md")
        assert answer.out == "\n".join(it.read_text() for it in sorted((results / "leaderboards").glob("*.md")))
        rows = list(csv.DictReader(io.StringIO(command("leaderboard", "--results", results, "--format", "csv").out)))
        assert [(row["benchmark"], row["row"]) for row in rows] == [*[("cifar10", it) for it in "123"], ("pmnist", "1")]
        assert command("leaderboard", "--results", results, "--format", "latex").out.count(r"\begin{table}") == 2

    @pytest.mark.parametrize("words", [("--budget", "size=3"), ("--pareto", "acc,size"), ("--columns=acx",)])
    def test_refused_before_anything_is_written(self, command: Command, results: Path, words: tuple[str, ...]) -> None:
        answer = command("leaderboard", "--results", results, *words)
        assert (answer.status, answer.out) == (2, "") and "Traceback" not in answer.err
        assert not (results / "leaderboards").exists()
