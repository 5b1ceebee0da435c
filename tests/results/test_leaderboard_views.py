"""Marks, budgets and Pareto fronts of leaderboards, by brute force and as they are shown."""

from __future__ import annotations

import csv
import io
import json
import random
from pathlib import Path
from typing import Any

import pytest
from support.board_records import COLUMNS, ODD, Put, frame, leaderboards, writer
from support.commands import Command

from seu_bench.errors import OptionError
from seu_bench.results.formats import intervals, to_csv, to_markdown
from seu_bench.results.leaderboard import Leaderboard, pareto_front, parse_view, within_budget


@pytest.fixture
def put(tmp_path: Path) -> Put:
    """Write a record with plausible metrics; keywords change fields."""
    return writer(tmp_path)


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
    assert len(board.rows) == 60
    return board


class TestMarks:
    def test_of_each_kind(self, tmp_path: Path, put: Put) -> None:
        accuracies = {
            "best": (0.90, 0.92, 0.94),
            "within": (0.91, 0.90, 0.93),
            "apart": (0.80, 0.82, 0.84),
            "few": (0.1, 0.1),
        }
        for strategy, values in accuracies.items():
            for seed, acc in enumerate(values):
                put(seed, acc, strategy=strategy)
        put(7, 0.2, strategy="elsewhere")
        put(0, strategy="nothing", metrics={})
        (board,) = leaderboards(tmp_path)
        order = ["best", "within", "apart", "elsewhere", "few", "nothing"]
        assert [row.record.strategy for row in board.rows] == order
        said = ["best", "not significant", "significant", "too few seeds", "too few seeds", None]
        for metric in ("mixed_score", "acc"):
            assert board.standings(metric) == said
            assert frame(board)[f"{metric}_against_best"].tolist()[:5] == said[:5]
            assert frame(board)[f"{metric}_against_best"].isna().tolist()[5]
        shown = {row[1]: row[3] for row in board.cells(["acc"])}
        assert {name: text[:2] for name, text in shown.items()} == {
            "best": "* ",
            "within": "≈ ",
            "apart": "82",
            "elsewhere": "? ",
            "few": "? ",
            "nothing": "-",
        }
        page = to_markdown(board)
        assert r"\* 92.00 ± 2.00" in page and "≈ 91.33 ± 1.53" in page and "? 20.00" in page
        assert "paired t-test over the seeds that both have" in page

    def test_each_column_has_a_best_of_its_own(self, tmp_path: Path, put: Put) -> None:
        """The largest accuracy need not be the best score: each is on the front, and rows are ordered by accuracy."""
        for seed, acc in enumerate((0.80, 0.83, 0.81)):
            put(seed, acc, strategy="small")
            put(seed, acc + 0.05, strategy="large", parameters=900_000_000)
        (board,) = leaderboards(tmp_path)
        assert [(row.record.strategy, row.on_front) for row in board.rows] == [("large", True), ("small", True)]
        assert board.standings("mixed_score") == ["significant", "best"]
        assert board.standings("acc") == ["best", "significant"]

    def test_more_rows_ask_for_clearer_differences(self, tmp_path: Path, put: Put) -> None:
        """Holm's correction over the rows shown: beside four more rows a difference is significant no longer."""
        for seed, acc in enumerate((0.90, 0.91, 0.92, 0.93)):
            put(seed, acc, strategy="best")
        for name in ("one", "two", "three", "four", "five"):
            for seed, acc in enumerate((0.84, 0.87, 0.85, 0.90)):
                put(seed, acc, strategy=name)
        (board,) = leaderboards(tmp_path)
        alone = board.narrowed([row for row in board.rows if row.record.strategy in ("best", "one")], "two rows")
        assert alone.standings("acc") == ["best", "significant"]
        assert board.standings("acc") == ["best", *["not significant"] * 5]

    def test_intervals_are_shown(self, tmp_path: Path, put: Put) -> None:
        for seed, acc in enumerate((0.5, 0.6, 0.7)):
            put(seed, acc)
        (board,) = leaderboards(tmp_path)
        assert board.rows[0].summary("acc") is not None
        assert intervals(board, ("acc", "forgetting", "intransigence"))[0][2:] == [
            "35.16 to 84.84",
            "3.52 to 8.48",
            "-",
        ]
        (row,) = csv.DictReader(io.StringIO(to_csv([board])))
        assert (float(row["acc_low"]), float(row["acc_high"])) == (pytest.approx(0.3515862), pytest.approx(0.8484138))
        assert "35.16 to 84.84" in to_markdown(board).partition("## Confidence intervals")[2]


class TestBudget:
    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("parms=5", "did you mean 'params'?"),
            ("acc=0.5", "no such metric"),
            ("", "no such metric"),
            ("params", "'' is no positive number"),
            ("params=many", "'many' is no positive number"),
            ("params=-1", "'-1' is no positive number"),
            ("params=0", "'0' is no positive number"),
            ("params=nan", "'nan' is no positive number"),
            ("macs=inf", "'inf' is no positive number"),
        ],
    )
    def test_faults(self, text: str, said: str) -> None:
        with pytest.raises(OptionError, match="--budget") as caught:
            parse_view([text])
        assert said in str(caught.value)
        assert caught.value.remedy

    @pytest.mark.parametrize("limit", [1, 1_000_000, 4_000_000, 4_500_000, 1e12])
    def test_by_brute_force(self, crowd: Leaderboard, limit: float) -> None:
        view = within_budget(crowd, {"params_total": limit})
        kept = [row for row in crowd.rows if (size := row.mean("params_total")) is not None and size <= limit]
        assert list(view.rows) == kept
        over = sum((row.mean("params_total") or 0) > limit for row in crowd.rows)
        (told,) = view.views
        assert told.startswith(f"parameters (M) at most {limit / 1e6:,.3f}: ")
        assert (f"{over} row{'s' * (over != 1)} excluded, above (" in told) == (over > 0)
        assert "; 6 rows excluded, not measured (s" in told
        assert crowd.views == () and len(crowd.rows) == 60

    def test_several(self, crowd: Leaderboard) -> None:
        view = within_budget(crowd, {"params_total": 4e6, "train_seconds": 50.0})
        assert len(view.views) == 2
        assert [row.number for row in view.rows] == [
            row.number
            for row in crowd.rows
            if (row.mean("params_total") or 1e9) <= 4e6 and (row.mean("train_seconds") or 1e9) <= 50
        ]


class TestPareto:
    @pytest.mark.parametrize(
        "axes", ["acc,params_total", "acc,memory", "acc,macs,seconds", "mixed_score,forgetting", "params_total,macs"]
    )
    def test_by_brute_force(self, crowd: Leaderboard, axes: str) -> None:
        metrics = [{"memory": "memory_bytes", "seconds": "train_seconds"}.get(it, it) for it in axes.split(",")]
        points = {
            row.number: [
                (1 if COLUMNS[metric].higher_is_better else -1) * (row.mean(metric) or 0.0) for metric in metrics
            ]
            for row in crowd.rows
            if all(row.mean(metric) is not None for metric in metrics)
        }
        front = {
            rank
            for rank, point in points.items()
            if not any(
                other != point and all(its >= mine for its, mine in zip(other, point, strict=True))
                for other in points.values()
            )
        }
        view = pareto_front(crowd, metrics)
        assert [row.number for row in view.rows] == sorted(front)
        (told,) = view.views
        assert f": {len(points) - len(front)} dominated row" in told
        assert ("; 6 rows excluded, not measured" in told) == (len(points) == 54)
        assert all(str(COLUMNS[metric].column) in told for metric in metrics)

    def test_equal_rows_stay(self, tmp_path: Path, put: Put) -> None:
        for strategy in ("a", "b"):
            put(0, 0.5, strategy=strategy)
        put(0, 0.4, strategy="c")
        (board,) = leaderboards(tmp_path)
        assert [row.record.strategy for row in pareto_front(board).rows] == ["a", "b"]

    @pytest.mark.parametrize("text", ["acc", "acc,acc", "acc,params,params_total", "acc,size", ",", "acc,,params"])
    def test_faults(self, text: str) -> None:
        with pytest.raises(OptionError, match="--pareto"):
            parse_view(pareto=text)


class TestShown:
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
        files = {path: path.read_bytes() for path in (results / "leaderboards").iterdir()}
        assert whole.status == 0 and len(files) == 4
        view = command("leaderboard", "--results", results, "--budget", "memory=25e6", "--benchmark", "cifar10")
        assert view.status == 0
        assert "memory (MB) at most 25.000: 2 rows excluded, above (" in view.out
        table = view.out.partition("95 %")[0]
        assert "small" in table and "large" not in table and "pmnist, version" not in view.out
        front = command("leaderboard", "--pareto", "--results", results, "--benchmark", "cifar10").out
        table, _, rest = front.partition("95 %")
        assert "small" in table and "large" in table and "script" not in table
        assert "Pareto front of acc (%) (higher is better) and memory (MB) (lower is better)" in " ".join(rest.split())
        assert {path: path.read_bytes() for path in (results / "leaderboards").iterdir()} == files

    def test_other_axes_after_the_budget(self, command: Command, results: Path) -> None:
        answer = command(
            "leaderboard", "--results", results, "--budget=params=25e6", "--pareto=acc,seconds", "--format=json"
        )
        boards = {board["benchmark"]: board for board in json.loads(answer.out)}
        assert len(boards["cifar10"]["views"]) == 2
        assert [row["strategy"] for row in boards["cifar10"]["rows"]] == ["large", "small"]
        assert [row["against_best"]["acc"] for row in boards["cifar10"]["rows"]] == ["best", "significant"]

    def test_nothing_left(self, command: Command, results: Path) -> None:
        for form, said in (
            ("table", "no row is left"),
            ("md", "0 configurations"),
            ("csv", ""),
            ("json", '"rows": []'),
        ):
            answer = command("leaderboard", "--results", results, "--budget", "params=1", "--format", form)
            assert (answer.status, said in answer.out) == (0, True)

    def test_texts(self, command: Command, results: Path) -> None:
        """Each form holds all leaderboards, and nothing but them."""
        pages = [path.read_text() for path in sorted((results / "leaderboards").glob("*.md"))]
        assert pages == []
        answer = command("leaderboard", "--results", results, "--format", "md")
        pages = [path.read_text() for path in sorted((results / "leaderboards").glob("*.md"))]
        assert answer.out == "\n".join(pages)
        rows = list(csv.DictReader(io.StringIO(command("leaderboard", "--results", results, "--format", "csv").out)))
        assert [(row["benchmark"], row["row"]) for row in rows] == [
            ("cifar10", "1"),
            ("cifar10", "2"),
            ("cifar10", "3"),
            ("pmnist", "1"),
        ]
        found = json.loads(command("leaderboard", "--results", results, "--format", "json").out)
        metrics = found[0]["rows"][0]["metrics"]
        assert list(metrics) == list(COLUMNS)
        assert metrics["acc"]["mean"] == pytest.approx(0.85)
        assert metrics["intransigence"] == dict.fromkeys(("mean", "std", "low", "high"))
        assert found[0]["rows"][0]["run_ids"] == {"0": "run-002", "1": "run-006", "2": "run-010"}

    def test_rows_at_the_most(self, command: Command, results: Path) -> None:
        answer = command("leaderboard", "--results", results, "--rows", "1", "--benchmark", "cifar10")
        assert "1 of 3 learners; the leaderboard's files" in answer.out
        assert " large " in answer.out and " small " not in answer.out.partition("95 %")[0]
        assert "1 of 3 rows;" not in command("leaderboard", "--results", results, "--rows", "0").out

    @pytest.mark.parametrize("words", [("--budget", "size=3"), ("--pareto", "acc,size"), ("--pareto=acc",)])
    def test_refused_before_anything_is_read_or_written(
        self, command: Command, results: Path, words: tuple[str, ...]
    ) -> None:
        answer = command("leaderboard", "--results", results, *words)
        assert (answer.status, answer.out) == (2, "")
        assert "Traceback" not in answer.err
        assert not (results / "leaderboards").exists()
