"""Configurations over benchmarks: which are compared, by what, and how it is shown in terminal and report."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.board_records import Put, leaderboards, writer
from support.commands import Command

from seu_bench.results.comparison import BenchmarkComparison, compare_over_benchmarks
from seu_bench.results.report import Limits, write_report
from seu_bench.results.report.draw_ranks import MOST_DRAWN, critical_difference
from seu_bench.results.report.layout import settings

#: Mean accuracies on each benchmark: a is always the best of four, the others change places.
TABLE = {
    "one": {"a": 0.90, "b": 0.80, "c": 0.70, "d": 0.60},
    "two": {"a": 0.80, "b": 0.60, "c": 0.70, "d": 0.50},
    "three": {"a": 0.70, "b": 0.60, "c": 0.60, "d": 0.20},
    "four": {"a": 0.95, "b": 0.90, "c": 0.80, "d": 0.10},
}


@pytest.fixture
def put(tmp_path: Path) -> Put:
    """Write a record with plausible metrics; keywords change fields."""
    return writer(tmp_path)


@pytest.fixture
def results(tmp_path: Path, put: Put) -> Path:
    """Two seeds of each of the table, which are above and below its mean by as much."""
    for benchmark, accuracies in TABLE.items():
        for strategy, acc in accuracies.items():
            for seed, side in enumerate((0.01, -0.01)):
                put(seed, acc + side, strategy=strategy, benchmark=benchmark)
    return tmp_path


def compared(results: Path, metric: str = "acc") -> BenchmarkComparison:
    (found,) = compare_over_benchmarks(leaderboards(results), metric)
    return found


def test_means_over_seeds_are_ranked(results: Path) -> None:
    """Four blocks, not eight: each benchmark counts once, whatever the number of seeds."""
    found = compared(results)
    assert found.ranks.benchmarks == ("four", "one", "three", "two")
    ranks = {row.configuration: dict(row.ranks) for row in found.ranks.rows}
    assert ranks["b"] == {"one": 2, "two": 3, "three": 2.5, "four": 2}
    assert [row.configuration for row in found.ranks.rows] == ["a", "b", "c", "d"]
    assert found.ranks.p_value is not None and found.ranks.p_value < 0.05
    verdicts = [row.verdict for row in found.ranks.rows]
    assert verdicts == [None, "not significant", "not significant", "significant"]
    assert found.excluded == ()


def test_direction_of_the_metric(results: Path) -> None:
    """The least forgetting is the best."""
    assert compared(results, "forgetting").ranks.rows[0].configuration == "d"


def test_largest_table_without_gaps(results: Path, put: Put) -> None:
    """What is on one benchmark only, and a benchmark that has one of them, are left out and told; references too."""
    put(0, 0.99, strategy="once", benchmark="one")
    put(0, 0.99, strategy="a", benchmark="five")
    put(0, strategy="unmeasured", benchmark="one", metrics={})
    for benchmark in TABLE:
        put(0, 0.99, strategy="joint", benchmark=benchmark)
    found = compared(results)
    assert found.ranks.benchmarks == ("four", "one", "three", "two")
    assert set(found.rows) == {"a", "b", "c", "d"}
    assert found.excluded == ("a (five)", "once (one, seeds 0)", "unmeasured (one, seeds 0)")


def test_only_common_seeds_are_ranked(results: Path, put: Put, command: Command) -> None:
    """A third seed, on which all is the other way round, does not count; who has too few is not ranked, and told."""
    put(2, 0.99, strategy="d", benchmark="one")
    put(2, 0.01, strategy="a", benchmark="two")
    for benchmark in TABLE:
        put(0, 0.99, strategy="once", benchmark=benchmark)
    found = compared(results)
    assert [(row.configuration, row.mean) for row in found.ranks.rows] == [
        ("a", 1),
        ("b", 2.375),
        ("c", 2.625),
        ("d", 4),
    ]
    assert found.seeds == ({0, 1},) * 4 and found.means["one"] == pytest.approx(TABLE["one"])
    assert found.excluded == tuple(f"once ({benchmark}, seeds 0)" for benchmark in sorted(TABLE))
    text = command("leaderboard", "--results", results, "--ranks").out
    assert (
        "one: means and ranks over the seeds that all have, 0-1" in text and "not compared: once (one, seeds 0)" in text
    )


def test_options_of_the_protocol_make_no_other_configuration(tmp_path: Path, put: Put) -> None:
    """One chosen by a protocol, or left at its default, is the same configuration; one chosen by the user is not."""
    for benchmark, strength in (("one", 5), ("two", 7), ("three", None)):
        layer: dict[str, Any] = {"strategies": {"ewc": {"strength": strength}}} if strength else {}
        fields = {"benchmark": benchmark, "protocol_settings": layer}
        put(0, 0.5, strategy="ewc", options={"strength": strength or 1, "backbone": "mlp"}, **fields)
        put(0, 0.6, strategy="naive", options={"backbone": "mlp"}, **fields)
        put(0, 0.7, strategy="naive", options={"backbone": "alexnet"}, **fields)
        if strength:
            put(0, 0.9, strategy="ewc", options={"strength": 9, "backbone": "mlp"}, **fields)
    found = compared(tmp_path)
    assert set(found.rows) == {"ewc", "naive (backbone=mlp)", "naive (backbone=alexnet)"}
    assert len(found.excluded) == 2 and all("strength=9" in name for name in found.excluded)
    assert [row.record.options.get("strength") for row in found.rows["ewc"]] == [5, 1, 7]


def test_tuned_options_make_no_other_configuration(tmp_path: Path, put: Put) -> None:
    """What tuning chose may differ by benchmark, or be the default where nothing was tuned; the user's own may not."""
    for benchmark, alpha in (("one", 0.5), ("two", 0.7), ("three", None)):
        fields: dict[str, Any] = {"strategy": "seu", "searcher": "mdl", "benchmark": benchmark}
        put(0, 0.7, benchmark=benchmark)
        if alpha:
            tuned = {"id": "x", "sha256": "0" * 64, "method": "first-tasks:3", "runs": 1, "image_passes": 1}
            fields["tuned"] = tuned | {"options": {"searcher.alpha": alpha}}
            put(0, 0.6, searcher_options={"alpha": 0.9}, **fields)
        put(0, 0.5, searcher_options={"alpha": alpha or 0.1}, **fields)
    found = compared(tmp_path)
    assert found.ranks.benchmarks == ("one", "three", "two")
    assert [row.record.searcher_options["alpha"] for row in found.rows["seu + mdl"]] == [0.5, 0.1, 0.7]
    assert len(found.excluded) == 2 and all("alpha=0.9" in name for name in found.excluded)


def test_each_protocol_by_itself(results: Path, put: Put) -> None:
    for benchmark in ("one", "two"):
        for strategy in ("a", "b"):
            put(0, TABLE[benchmark][strategy], strategy=strategy, benchmark=benchmark, protocol="paper")
    found = compare_over_benchmarks(leaderboards(results))
    assert [each.protocol for each in found] == ["paper", "quick"]
    assert [row.verdict for row in found[0].ranks.rows] == [None, "too few benchmarks"]


@pytest.mark.parametrize("benchmarks", [("one",), ("one", "two")])
def test_nothing_to_compare(tmp_path: Path, put: Put, benchmarks: tuple[str, ...]) -> None:
    """One benchmark, or one configuration."""
    for benchmark in benchmarks:
        put(0, strategy="a", benchmark=benchmark)
    put(0, strategy="b", benchmark="one")
    assert compare_over_benchmarks(leaderboards(tmp_path)) == []


class TestCommand:
    def test_table(self, command: Command, results: Path) -> None:
        answer = command("leaderboard", "--results", results, "--ranks")
        lines = {line.split()[0]: line.split() for line in answer.out.splitlines() if line.strip()}
        assert lines["b"][1:2] == ["2.38"] and lines["b"][-4:] == ["90.00", "80.00", "60.00", "60.00"]
        assert lines["a"][1:5] == ["1.00", "-", "the", "best"]
        assert "Friedman's test: chi-squared" in answer.out

    def test_json(self, command: Command, results: Path) -> None:
        (found,) = json.loads(command("leaderboard", "--results", results, "--ranks=acc", "--format=json").out)
        assert (found["protocol"], found["metric"], found["control"]) == ("quick", "acc", "a")
        assert found["rows"][3]["verdict"] == "significant"

    def test_refused(self, command: Command, results: Path) -> None:
        for words, said in ((["--ranks=ac"], "did you mean 'acc'"), (["--ranks", "--format=md"], "no --format md")):
            answer = command("leaderboard", "--results", results, *words)
            assert answer.status == 2 and said in answer.err
        answer = command("leaderboard", "--results", results, "--ranks", "--benchmark", "one")
        assert "no two configurations" in answer.out


class TestReport:
    def test_diagram(self, results: Path) -> None:
        """Each configuration at its average rank; the bar from the best to the last that is not told from it."""
        found = compared(results)
        picture = critical_difference(found)
        with settings():
            (axes,) = picture.draw().axes
        texts = {text.get_text() for text in axes.texts}
        assert {"a  1.00", "b  2.38", "2.62  c", "4.00  d"} <= texts
        assert any("critical difference" in text for text in texts)
        (bar,) = [line for line in axes.get_lines() if line.get_linewidth() >= 3]
        # Four ranks on the scale's length; the bar reaches a little over both ends, in inches.
        scale = max(axes.get_lines()[0].get_xdata())
        assert list(bar.get_xdata()) == pytest.approx([-0.03, scale * (2.625 - 1) / 3 + 0.03])
        assert "d: average rank 4.00, significant" in picture.alt
        assert picture.numbers[1][:4] == ("a", "1.00", "-", "the best")

    def test_nothing_is_said_of_too_few(self, results: Path) -> None:
        two = [board for board in leaderboards(results) if board.benchmark in ("one", "two")]
        picture = critical_difference(compare_over_benchmarks(two)[0])
        with settings():
            (axes,) = picture.draw().axes
        assert not any("critical" in text.get_text() for text in axes.texts)
        assert "Nothing is said of significance" in picture.caption

    def test_many_are_cut(self, tmp_path: Path, put: Put) -> None:
        for benchmark in ("one", "two", "three"):
            for place in range(MOST_DRAWN + 3):
                put(0, place / 100, strategy=f"s{place:02d}", benchmark=benchmark)
        picture = critical_difference(compared(tmp_path))
        with settings():
            (axes,) = picture.draw().axes
        assert sum("  " in text.get_text() for text in axes.texts) == MOST_DRAWN
        assert "3 more are in the table" in picture.caption and len(picture.numbers) == MOST_DRAWN + 4

    def test_page(self, results: Path) -> None:
        """A section and its figure's files, the first of all figures; its numbers alone where there is no room."""
        for figures in (1, 0):
            written = write_report(results, limits=Limits(figures=figures))
            page = written.page.read_text(encoding="utf-8")
            assert "over several benchmarks" in page and "Not on all of them" not in page
            plain = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))
            assert "a 1.00 - the best" in plain
            names = {path.name for path in written.figures}
            assert names == (
                {f"over-benchmarks-quick-average-ranks.{end}" for end in ("pdf", "png", "svg")} if figures else set()
            )
