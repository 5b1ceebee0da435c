"""Configurations over their seeds: found by a run of each, compared in families, and shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.board_records import Put, leaderboards, writer
from support.commands import Command

from seu_bench.results.comparison import COMPARED_BY, compare_over_seeds
from seu_bench.results.report import Limits, write_report
from seu_bench.results.statistics import paired_p_value

#: Accuracies by seed. The others are below the first by differences that are clear alone, and not among many.
FIRST, UNCLEAR = (0.90, 0.91, 0.92, 0.93), (0.84, 0.87, 0.85, 0.90)


@pytest.fixture
def put(tmp_path: Path) -> Put:
    """Write a record with plausible metrics; keywords change fields."""
    return writer(tmp_path)


@pytest.fixture
def results(tmp_path: Path, put: Put) -> Path:
    """Runs of six strategies on four seeds; run-001 is the first's, run-005 the next one's, and so on."""
    task = {"task_order": (0,), "task_names": ("all",)}
    for place in range(6):
        for seed, acc in enumerate(FIRST if place == 0 else UNCLEAR):
            put(seed, acc, strategy=f"s{place}", accuracy_matrix=((acc,),), **task)
    return tmp_path


def test_holm_changes_the_verdict(results: Path) -> None:
    """One comparison is significant; beside four that are no clearer none is."""
    boards = leaderboards(results)
    p_value = paired_p_value(dict(enumerate(FIRST)), dict(enumerate(UNCLEAR)))
    alone = compare_over_seeds(boards, ["run-001", "run-005"])
    assert alone is not None
    (found,) = alone.metrics["acc"]
    assert (found.verdict, found.corrected, found.comparisons) == ("significant", p_value, 1)
    together = compare_over_seeds(boards, [f"run-{1 + 4 * place:03d}" for place in range(6)])
    assert together is not None
    assert {(each.verdict, each.comparisons) for each in together.metrics["acc"]} == {("not significant", 5)}
    assert together.metrics["acc"][0].corrected == pytest.approx(5 * (p_value or 0))


def test_differences_are_to_the_first(results: Path) -> None:
    """Of all metrics that were measured, over the common seeds, whichever run of a configuration is named."""
    found = compare_over_seeds(leaderboards(results), ["run-003", "run-008", "run-005"])
    assert found is not None
    assert (found.one.configuration, [row.configuration for row in found.others]) == ("s0", ["s1"])
    measured = leaderboards(results)[0].rows[0].record.metrics
    assert list(found.metrics) == [name for name in COMPARED_BY if name in measured]
    assert {"acc", "forgetting", "params_total", "mixed_score"} <= set(found.metrics)
    (accuracy,) = found.metrics["acc"]
    assert accuracy.by_seed == pytest.approx({0: -0.06, 1: -0.04, 2: -0.07, 3: -0.03})
    (size,) = found.metrics["params_total"]
    assert (size.summary and size.summary.mean, size.verdict) == (0.0, "not significant")


@pytest.mark.parametrize(("runs"), [("run-001", "run-002"), ("run-001", "nothing"), ("run-001", "elsewhere")])
def test_no_comparison(results: Path, put: Put, runs: tuple[str, ...]) -> None:
    """Of one configuration, of a run that is not there, and of runs of two leaderboards."""
    put(0, strategy="s1", benchmark="other", run_id="elsewhere")
    assert compare_over_seeds(leaderboards(results), runs) is None


class TestCommand:
    def test_tables(self, command: Command, results: Path) -> None:
        answer = command("compare", "--results", results, "run-001", "run-005")
        assert answer.status == 0
        below = answer.out.partition("over 4 common seeds: s1 less s0")[2]
        lines = {line.split("  ")[0].strip(): line.split() for line in below.splitlines() if line.strip()}
        assert "-5.00 -7.91 to -2.09" in " ".join(below.split())
        assert "significant" in below and "Holm" in below
        assert lines["acc (%)"][-2:] == ["0.0120", "significant"]

    def test_json(self, command: Command, results: Path) -> None:
        found = json.loads(
            command("compare", "--results", results, "run-001", "run-005", "run-009", "--format=json").out
        )
        assert [document["runs"] for document in found["runs"]] == [["run-001", "run-005"], ["run-001", "run-009"]]
        assert found["over_seeds"]["first"] == "s0"
        (one, other) = found["over_seeds"]["others"]
        assert (one["configuration"], other["configuration"]) == ("s1", "s2")
        said = one["metrics"]["acc"]
        assert (said["pairs"], said["comparisons"], said["verdict"]) == (4, 2, "significant")

    def test_one_configuration(self, command: Command, results: Path) -> None:
        assert "over seeds: no comparison" in command("compare", "--results", results, "run-001", "run-002").out


def test_report_has_the_differences_to_the_best(results: Path) -> None:
    """As ``compare`` has them, corrected for all rows of the leaderboard."""
    page = write_report(results, limits=Limits(configurations=3, figures=0)).page.read_text(encoding="utf-8")
    table = page.partition("Accuracy beside that of 1 s0")[2].partition("</table>")[0]
    assert table.count("<td>-5.00</td><td>-7.91 to -2.09</td>") == 2
    assert table.count("<td>not significant</td>") == 2 and "<td>0.0598</td>" in table
