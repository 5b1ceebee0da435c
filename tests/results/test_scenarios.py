"""Runs of different scenarios are in different leaderboards, are never compared, and say in words what they are."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from support.board_records import Put, leaderboards, writer
from support.commands import Command
from support.shown import rendered

import seu_bench
from seu_bench.cli.tables import leaderboard_table
from seu_bench.config.streams import SCENARIOS, Scenario
from seu_bench.errors import RequestError
from seu_bench.results.building import (
    compare_with_reference,
    make_leaderboards,
    read_leaderboards,
    unranked_leaderboards,
)
from seu_bench.results.comparison import compare, compare_over_benchmarks, compare_over_seeds
from seu_bench.results.formats import to_csv, to_latex, to_markdown
from seu_bench.results.labels import configuration_labels
from seu_bench.results.leaderboard import Leaderboard
from seu_bench.results.record import Record
from seu_bench.results.reference_rows import WITHOUT_TASKS, missing_references
from seu_bench.results.scenarios import adjective, definition, other_overrides
from seu_bench.utils.text import escape_latex, escape_markdown

CLASS: dict[str, Any] = {"scenario": "class", "benchmark_overrides": {"stream.scenario": "class"}}
DOMAIN: dict[str, Any] = {"scenario": "domain", "benchmark_overrides": {"stream.scenario": "domain"}}
#: What a class-incremental run measures besides.
MEASURED = {"acc": 0.5, "avg_incremental_acc": 0.75, "task_accuracy": 0.625, "cross_task_errors": 0.875}


@pytest.fixture
def put(tmp_path: Path) -> Put:
    return writer(tmp_path)


@pytest.fixture
def boards(tmp_path: Path, put: Put) -> dict[str, Leaderboard]:
    """Of one benchmark, by scenario: with one data fingerprint, which real runs of two scenarios never have."""
    put(strategy="seu", metrics=MEASURED)
    put(strategy="icarl", metrics=MEASURED, **CLASS)
    put(strategy="ewc", metrics=MEASURED, **DOMAIN)
    return {board.scenario: board for board in leaderboards(tmp_path)}


def test_every_scenario_has_words() -> None:
    assert [adjective(scenario) for scenario in SCENARIOS] == [f"{scenario}-incremental" for scenario in SCENARIOS]
    assert all(definition(scenario).startswith(f"{adjective(scenario)}: the task of") for scenario in SCENARIOS)


class TestLeaderboards:
    def test_never_mixed(self, boards: dict[str, Leaderboard]) -> None:
        """Task-incremental ones first, with the name that they have always had."""
        assert {scenario: [row.configuration for row in board.rows] for scenario, board in boards.items()} == {
            "task": ["seu"],
            "class": ["icarl"],
            "domain": ["ewc"],
        }
        assert [(board.name, board.scenario) for board in boards.values()] == [
            ("cifar10-v1-quick", "task"),
            ("cifar10-class-v1-quick", "class"),
            ("cifar10-domain-v1-quick", "domain"),
        ]
        assert all(board.fingerprints == 1 for board in boards.values())

    def test_headings(self, boards: dict[str, Leaderboard]) -> None:
        assert [board.title for board in boards.values()] == [
            "cifar10, version 1, protocol quick",
            "cifar10, version 1, protocol quick, class-incremental",
            "cifar10, version 1, protocol quick, domain-incremental",
        ]
        for scenario, board in boards.items():
            latex, said = to_latex(board), definition(board.scenario)
            terminal = " ".join(rendered(leaderboard_table(board), 200).split())
            is_said = [
                escape_markdown(said) in to_markdown(board),
                said in terminal,
                escape_latex(said.capitalize()) in latex,
            ]
            assert is_said == [scenario != "task"] * 3
            assert ("incremental" in latex) == (scenario != "task")

    def test_a_benchmark_whose_name_says_it(self, tmp_path: Path, put: Put) -> None:
        """It is not said twice in the name of the file."""
        put(benchmark="digits_class", scenario="class")
        put(benchmark="digits_class", scenario="domain")
        assert [board.name for board in leaderboards(tmp_path)] == [
            "digits_class-v1-quick",
            "digits_class-domain-v1-quick",
        ]

    def test_files(self, boards: dict[str, Leaderboard], tmp_path: Path) -> None:
        names = [path.name for path in make_leaderboards(tmp_path).paths]
        assert names[2:] == [f"cifar10-{it}-v1-quick.{form}" for it in ("class", "domain") for form in ("md", "csv")]

    def test_labels_do_not_repeat_it(self) -> None:
        """The heading says it; what else was changed is named."""
        changed = {"stream.scenario": "class", "stream.class_order": 1993}
        records = [a_record(**CLASS), a_record(scenario="class", benchmark_overrides=changed)]
        assert configuration_labels(records) == ["naive", "naive (benchmark.stream.class_order=1993)"]

    def test_a_scenario_that_was_asked_for_is_no_other_row(self, tmp_path: Path, put: Put) -> None:
        """Of a benchmark that has it by itself."""
        put(0)
        put(1, benchmark_overrides={"stream.scenario": "task"})
        (board,) = leaderboards(tmp_path)
        assert [(row.configuration, row.seeds) for row in board.rows] == [("naive", 2)]

    def test_plain_values(self, boards: dict[str, Leaderboard], tmp_path: Path) -> None:
        """The scenario is in each form; in CSV it is a column where it says something."""
        assert [board.document()["scenario"] for board in boards.values()] == list(SCENARIOS)
        rows = list(csv.DictReader(io.StringIO(to_csv(boards.values()))))
        assert [row["scenario"] for row in rows] == list(SCENARIOS)
        assert "scenario" not in to_csv([boards["task"]]).partition("\n")[0]
        assert list(seu_bench.leaderboard(tmp_path).frame["scenario"]) == list(SCENARIOS)

    def test_unranked_ones(self, put: Put) -> None:
        """They are apart as well, with the scenario in the name."""
        records = [put(synthetic=True, **fields) for fields in ({}, CLASS)]
        made = unranked_leaderboards(records)
        assert [(board.name, board.scenario) for board in made] == [
            ("cifar10-v1-quick-unranked", "task"),
            ("cifar10-class-v1-quick-unranked", "class"),
        ]
        assert made[1].title == "cifar10, version 1, protocol quick, class-incremental, NOT RANKED (synthetic data)"
        assert definition("class") in to_markdown(made[1]).replace("\\", "")

    def test_what_is_excluded_is_of_the_same_scenario(self, tmp_path: Path, put: Put) -> None:
        put()
        put(**CLASS)
        put(synthetic=True, **CLASS)
        task, by_class = leaderboards(tmp_path)
        assert (task.excluded, by_class.excluded) == ((), ("1 record not ranked: synthetic data (run-003)",))

    def test_command(self, boards: dict[str, Leaderboard], tmp_path: Path, command: Command) -> None:
        answer = command("leaderboard", "--results", tmp_path)
        assert answer.status == 0 and "cifar10-class-v1-quick.md" in answer.out


class TestReferences:
    def test_joint_of_the_same_scenario(self, put: Put) -> None:
        """Another one is no reference, on whatever data; how its scenario was chosen makes no difference."""
        whole: dict[str, Any] = {"strategy": "joint", "accuracy_matrix": ((None, None), (0.8, 0.8))}
        joint = [put(0, 0.8, **whole), put(0, 0.5, **whole, scenario="class")]
        found = compare_with_reference([put(0, 0.4, **CLASS), put(0, 0.4), put(0, 0.4, **DOMAIN), *joint])
        assert [record.metrics["percent_of_joint"] for record in found[:3]] == [
            pytest.approx(0.8),
            pytest.approx(0.5),
            None,
        ]

    @pytest.mark.parametrize(("scenario", "fields"), [("class", CLASS), ("domain", DOMAIN)])
    def test_missing_ones(self, scenario: str, fields: dict[str, Any]) -> None:
        """Those that can do without a task's label; the command makes them in this scenario."""
        command = "seu-bench sweep --strategy {} --benchmark cifar10 --protocol quick " + (
            f"-o benchmark.stream.scenario={scenario} --seeds 0"
        )
        assert missing_references([a_record(**fields)]) == (WITHOUT_TASKS, command.format(",".join(WITHOUT_TASKS)))
        known = [a_record(strategy=name, **fields) for name in ("nearest_mean", "joint", "linear")]
        assert missing_references(known) == (("cumulative",), command.format("cumulative"))
        assert missing_references([a_record(strategy=name, **fields) for name in WITHOUT_TASKS]) is None

    def test_of_a_benchmark_that_has_the_scenario_by_itself(self) -> None:
        """It need not be asked for, also if somebody did."""
        found = missing_references([a_record(scenario="class"), a_record(**CLASS)])
        assert found is not None and "scenario" not in found.command


class TestComparisons:
    @pytest.mark.parametrize(
        ("one", "other"), [("class", "task"), ("task", "domain"), ("domain", "class")], ids=lambda it: str(it)
    )
    def test_of_two_runs_is_refused(self, one: Scenario, other: Scenario) -> None:
        """In words; the fingerprints, which differ for the same reason, are not named."""
        runs = [
            a_record(scenario=it, data_fingerprint=it, task_order=(0, 1), task_names=("a", "b")) for it in (one, other)
        ]
        with pytest.raises(RequestError) as caught:
            compare(*runs)
        assert caught.value.what == (
            f"these runs are not comparable: one is {adjective(one)} and the other {adjective(other)}: accuracies "
            "answer different questions"
        )

    def test_other_reasons_are_named_too(self) -> None:
        with pytest.raises(RequestError, match=r"different questions; protocol 'quick' and 'paper'"):
            compare(a_record(), a_record(protocol="paper", **CLASS))

    def test_of_two_runs_of_one_scenario(self) -> None:
        """The scenario is no setting that differs, however it was chosen."""
        runs = [
            a_record(data_fingerprint="x", task_order=(0, 1), task_names=("a", "b"), **fields)
            for fields in (CLASS, {"scenario": "class"})
        ]
        assert compare(*runs).settings == {}

    def test_command(self, put: Put, tmp_path: Path, command: Command) -> None:
        names = [put(**fields).run_id for fields in ({}, CLASS)]
        answer = command("compare", *names, "--results", tmp_path)
        assert answer.status != 0
        assert (
            "one is task-incremental and the other class-incremental: accuracies answer different questions"
            in answer.err
        )

    def test_over_seeds(self, tmp_path: Path, put: Put) -> None:
        """No leaderboard has both."""
        names = [put(seed, **fields).run_id for fields in ({}, CLASS) for seed in range(3)]
        assert compare_over_seeds(read_leaderboards(tmp_path).boards, [names[0], names[3]]) is None

    def test_over_benchmarks(self, tmp_path: Path, put: Put, command: Command) -> None:
        """Two on each of two benchmarks in two scenarios are two comparisons of two, by whichever means chosen."""
        for benchmark in ("one", "two"):
            for strategy, acc in (("a", 0.9), ("b", 0.8)):
                put(0, acc, strategy=strategy, benchmark=benchmark)
                own = CLASS if benchmark == "one" else {"scenario": "class"}
                put(0, 1 - acc, strategy=strategy, benchmark=benchmark, **own)
        found = compare_over_benchmarks(leaderboards(tmp_path))
        assert [(each.place, each.scenario) for each in found] == [
            ("protocol quick", "task"),
            ("protocol quick, class-incremental", "class"),
        ]
        assert [[row.configuration for row in each.ranks.rows] for each in found] == [["a", "b"], ["b", "a"]]
        assert all(each.ranks.benchmarks == ("one", "two") for each in found)
        documents = json.loads(command("leaderboard", "--results", tmp_path, "--ranks", "--format", "json").out)
        assert [document["scenario"] for document in documents] == ["task", "class"]
        assert (
            "protocol quick, class-incremental: average ranks"
            in command("leaderboard", "--results", tmp_path, "--ranks").out
        )

    def test_one_benchmark_in_two_scenarios_is_no_comparison(self, tmp_path: Path, put: Put) -> None:
        for strategy in ("a", "b"):
            put(strategy=strategy)
            put(strategy=strategy, **CLASS)
        assert compare_over_benchmarks(leaderboards(tmp_path)) == []


class TestTables:
    def test_runs(self, put: Put, tmp_path: Path, command: Command) -> None:
        for fields in ({}, CLASS):
            put(**fields)
        found = json.loads(command("runs", "--results", tmp_path, "--format", "json").out)
        assert [run["scenario"] for run in found] == ["task", "class"]

    def test_frame(self, put: Put, tmp_path: Path) -> None:
        put()
        put(**CLASS, task_confusion=((3, 1), (0, 4)))
        frame = seu_bench.load_records(tmp_path)
        assert list(frame["scenario"]) == ["task", "class"]
        assert list(frame["task_confusion"]) == [(), ((3, 1), (0, 4))]


def a_record(**fields: Any) -> Record:
    given = {"run_id": "x", "status": "finished", "strategy": "naive", "benchmark": "cifar10"}
    return Record.model_validate(given | {"benchmark_version": 1, "protocol": "quick", "seed": 0} | fields)


def test_where_data_lie_is_no_other_configuration() -> None:
    """Runs of people whose folders lie elsewhere are seeds of one row; a run with other images is not."""
    places = {"datasets.birds.path": "/home/jane/birds", "datasets.birds.cache": "memory"}
    assert other_overrides(a_record(benchmark_overrides=places)) == {}
    size = {"datasets.birds.size": 32, "stream.scenario": "class"}
    assert other_overrides(a_record(benchmark_overrides=places | size)) == {"datasets.birds.size": 32}
