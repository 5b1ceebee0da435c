"""Scenarios: never mixed in a leaderboard or a comparison, and said where they are not ``task``."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from support.board_records import Put, leaderboards
from support.shown import rendered

import seu_bench
from seu_bench.cli.tables import leaderboard_table
from seu_bench.config.streams import SCENARIOS, Scenario
from seu_bench.errors import RequestError
from seu_bench.results.building import unranked_leaderboards
from seu_bench.results.comparison import compare
from seu_bench.results.formats import to_csv, to_latex, to_markdown
from seu_bench.results.labels import adjective, configuration_labels, definition, other_overrides
from seu_bench.results.leaderboard import Leaderboard
from seu_bench.results.record import Record
from seu_bench.results.record_metrics import SCENARIO_METRICS
from seu_bench.utils.text import escape_markdown

#: Fields of records that were asked for in a scenario.
CLASS: dict[str, Any] = {"scenario": "class", "benchmark_overrides": {"stream.scenario": "class"}}
DOMAIN: dict[str, Any] = {"scenario": "domain", "benchmark_overrides": {"stream.scenario": "domain"}}
MEASURED: dict[str, Any] = {"acc": 0.5, "params_total": 1000} | dict.fromkeys(SCENARIO_METRICS, 0.25)
MEASURED["avg_incremental_image_acc"] = 0.26


def a_record(**fields: Any) -> Record:
    given = {"run_id": "x", "status": "finished", "strategy": "naive", "benchmark": "cifar10"}
    return Record.model_validate(given | {"benchmark_version": 1, "protocol": "quick", "seed": 0} | fields)


@pytest.fixture
def boards(tmp_path: Path, put: Put) -> dict[str, Leaderboard]:
    """Of one benchmark, by scenario: with one data fingerprint, which real runs of two scenarios never have."""
    put(strategy="seu", metrics=MEASURED)
    put(strategy="icarl", metrics=MEASURED, **CLASS)
    put(strategy="ewc", metrics=MEASURED, **DOMAIN)
    return {board.scenario: board for board in leaderboards(tmp_path)}


def test_each_has_a_leaderboard_that_says_it(boards: dict[str, Leaderboard], tmp_path: Path) -> None:
    """Task-incremental ones first, with the name that they have always had; metrics where they mean something."""
    assert [(scenario, board.name, board.records) for scenario, board in boards.items()] == [
        ("task", "cifar10-v1-quick", 1),
        ("class", "cifar10-class-v1-quick", 1),
        ("domain", "cifar10-domain-v1-quick", 1),
    ]
    for scenario, board in boards.items():
        said, is_said = definition(board.scenario), scenario != "task"
        assert board.title.endswith("protocol quick" + (f", {scenario}-incremental" if is_said else ""))
        terminal = " ".join(rendered(leaderboard_table(board), 200).split())
        assert [escape_markdown(said) in to_markdown(board), said in terminal] == [is_said] * 2
        assert f"{scenario}-incremental" in to_latex(board)
        shown = {name for name in board.columns if name in SCENARIO_METRICS}
        assert shown == {name for name, scenarios in SCENARIO_METRICS.items() if scenario in scenarios}
    rows = list(csv.DictReader(io.StringIO(to_csv(boards.values()))))
    assert [row["scenario"] for row in rows] == list(SCENARIOS)
    assert "scenario" not in to_csv([boards["task"]]).partition("\n")[0]
    assert list(seu_bench.leaderboard(tmp_path).frame["scenario"]) == list(SCENARIOS)


def test_names(tmp_path: Path, put: Put) -> None:
    """A benchmark whose name says the scenario does not say it twice; unranked ones say it, too."""
    put(benchmark="digits_class", scenario="class")
    put(benchmark="digits_class", scenario="domain")
    assert [it.name for it in leaderboards(tmp_path)] == ["digits_class-v1-quick", "digits_class-domain-v1-quick"]
    (board,) = unranked_leaderboards([put(synthetic=True, **CLASS)])
    assert board.name == "cifar10-class-v1-quick-unranked"
    assert board.title == "cifar10, version 1, protocol quick, class-incremental, NOT RANKED (synthetic data)"


def test_labels_do_not_repeat_it() -> None:
    """The heading says it; what else was changed is named, but for where data lie."""
    changed = {"stream.scenario": "class", "stream.class_order": 1993}
    records = [a_record(**CLASS), a_record(scenario="class", benchmark_overrides=changed)]
    assert configuration_labels(records) == ["naive", "naive (benchmark.stream.class_order=1993)"]
    places = {"datasets.birds.path": "/home/jane/birds", "datasets.birds.cache": "memory", "datasets.birds.size": 32}
    assert other_overrides(a_record(benchmark_overrides=places | changed)) == {
        "datasets.birds.size": 32,
        "stream.class_order": 1993,
    }


@pytest.mark.parametrize(("one", "other"), [("class", "task"), ("task", "domain"), ("domain", "class")])
def test_comparison_of_two_runs_is_refused(one: Scenario, other: Scenario) -> None:
    """In words; the fingerprints, which differ for the same reason, are not named; other reasons are."""
    runs = [a_record(scenario=it, data_fingerprint=it, task_order=(0, 1)) for it in (one, other)]
    said = f"one is {adjective(one)} and the other {adjective(other)}: accuracies answer different questions"
    with pytest.raises(RequestError) as caught:
        compare(*runs)
    assert caught.value.what == f"these runs are not comparable: {said}"
    with pytest.raises(RequestError, match=r"different questions"):
        compare(runs[0], runs[1].model_copy(update={"protocol": "paper"}))
