"""Comparisons: two runs by hand and on published runs; configurations over seeds and over benchmarks; refusals."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from support.board_records import Put, leaderboards
from support.commands import Command
from support.shown import ODD, a_record, rendered

from seu_bench.cli.compare import comparison_tables
from seu_bench.errors import RequestError
from seu_bench.metrics import forgetting
from seu_bench.results.comparison import (
    COMPARED_BY,
    BenchmarkComparison,
    compare,
    compare_over_benchmarks,
    compare_over_seeds,
    difference_cells,
)
from seu_bench.results.record import Environment, Record, StageRecord
from seu_bench.results.record_files import read_records
from seu_bench.results.record_metrics import METRICS
from seu_bench.results.statistics import compare_paired

RECORDS = Path(__file__).resolve().parents[1] / "support" / "sample_records"


def a_run(**fields: Any) -> Record:
    """Two tasks of a benchmark, learned in the order 1, 0."""
    stages = [("training", 0, 10.0), ("evaluation", 0, 1.0), ("search", 1, 5.0), ("training", 1, 20.0)]
    given: dict[str, Any] = {
        "run_id": "one",
        "task_order": (1, 0),
        "task_names": ("one", "zero"),
        "accuracy_matrix": ((0.9, None), (0.6, 0.8)),
        "params_total": (100, 150),
        "memory_bytes": (400, 900),
        "stages": tuple(
            StageRecord(name=name, task=task, epochs=1, seconds=seconds, image_passes=1)
            for name, task, seconds in stages
        ),
    }
    return a_record(2, **(given | fields))


class TestTwoRuns:
    def test_by_hand(self) -> None:
        other = a_run(run_id="other", accuracy_matrix=((0.7, None), (0.7, 0.9)), params_total=(100, 100))
        other = other.model_copy(update={"memory_bytes": ()})  # of an older version
        found = compare(a_run(), other)
        first, last = found.tasks
        assert [(task["task"], task["name"]) for task in found.tasks] == [(1, "one"), (0, "zero")]
        assert first["final"] == (0.6, 0.7, pytest.approx(0.1)) and first["learned"][:2] == (0.9, 0.7)
        assert first["forgetting"][:2] == (pytest.approx(0.3), 0.0) and first["seconds"] == (10.0, 10.0, 0.0)
        assert last["forgetting"] == (None, None, None) and last["parameters"] == (150, 100, -50)
        assert (first["memory"], last["memory"]) == ((400, None, None), (900, None, None))
        assert found.metrics["acc"] == pytest.approx((0.7, 0.8, 0.1))
        assert "fwt" not in found.metrics and found.settings == {} and found.same_order
        assert "settings: all the same" in rendered(comparison_tables(found))

    def test_tasks_meet_whatever_the_order(self) -> None:
        other = a_run(seed=8, task_order=(0, 1), task_names=("zero", "one"), accuracy_matrix=((0.5, None), (0.4, 1.0)))
        found = compare(a_run(), other)
        by_task = {task["task"]: task for task in found.tasks}
        assert by_task[0]["final"][:2] == (0.8, 0.4) and by_task[0]["learned"][:2] == (0.8, 0.5)
        assert by_task[1]["final"][:2] == (0.6, 1.0) and by_task[0]["forgetting"][:2] == (None, pytest.approx(0.1))
        assert not found.same_order and {"seed", "task_order"} == set(found.settings)
        assert "another order" in rendered(comparison_tables(found))

    def test_what_was_not_measured(self) -> None:
        """A run that was stopped, and one that is evaluated once, as joint is."""
        stopped = a_run(status="interrupted", accuracy_matrix=((0.9, None),), params_total=(100,))
        joint = a_run(accuracy_matrix=((None, None), (0.9, math.inf)), params_total=(70,), metrics={"acc": math.inf})
        found = compare(stopped, joint)
        first, last = found.tasks
        assert [first[it][:2] for it in ("final", "learned", "parameters")] == [(None, 0.9), (0.9, None), (100, None)]
        assert [last[it][:2] for it in ("final", "learned", "parameters")] == [(None, None), (None, None), (None, 70)]
        assert found.metrics.keys() == {key for key, value in stopped.metrics.items() if value is not None}
        assert "inf" not in rendered(comparison_tables(found))

    def test_settings_by_name(self) -> None:
        other = a_run(
            strategy="naive",
            searcher=None,
            searcher_options={},
            options={"decay": 0.5, "rule": "sum", "epochs": None},
            protocol_settings={"training": {"epochs": 3}},
            environment=Environment(device="cuda", versions={"torch": "3"}),
        )
        assert compare(a_run(environment=Environment(versions={"torch": "2"})), other).settings == {
            "strategy": ("seu", "naive"),
            "searcher": ("mdl", None),
            "options.decay": ("0.0003", "0.5"),
            "searcher.alpha": ("0.01", None),
            "protocol.training.epochs": (None, "3"),
            "environment.device": ("cpu", "cuda"),
            "environment.versions.torch": ("2", "3"),
        }

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"benchmark": "pmnist"}, "benchmark 'cifar10' and 'pmnist'"),
            ({"benchmark_version": 2}, "benchmark version 1 and 2"),
            ({"protocol": "paper"}, "protocol 'quick' and 'paper'"),
            ({"data_fingerprint": "cd" * 32}, "data fingerprint"),
            ({"synthetic": True}, "synthetic False and True"),
            ({"limit": 10}, "limit None and 10"),
            ({"task_order": (0, 2)}, "tasks [0, 1] and [0, 2]"),
        ],
    )
    def test_what_must_not_mix(self, change: dict[str, Any], said: str) -> None:
        with pytest.raises(RequestError, match="not comparable") as caught:
            compare(a_run(), a_run(run_id="other", **change))
        assert said in str(caught.value) and caught.value.where == "one and other"

    @pytest.mark.parametrize("fields", [{"data_fingerprint": None}, {"task_order": ()}, {"task_order": (1, 1)}])
    def test_what_says_too_little(self, fields: dict[str, Any]) -> None:
        with pytest.raises(RequestError, match="not comparable"):
            compare(a_run(**fields), a_run(**fields))

    def test_whatever_a_record_holds(self) -> None:
        odd = a_run(run_id="odd", task_names=(ODD, "a\x1b[2Jb"), strategy="c\x1b]0;x\x07", options={ODD: "\x1b[31m"})
        text = rendered(comparison_tables(compare(odd, a_run())), width=300)
        assert ODD in text and not any(letter in text for letter in "\x1b\x07")
        narrow = rendered(comparison_tables(compare(odd, a_run())))
        assert max(map(len, narrow.splitlines())) <= 80 and "…" not in narrow

    @pytest.mark.parametrize(
        ("names", "said"),
        [
            ((), "one run cannot be compared"),
            (("pmnist-quick-agem-seed0",), "benchmark 'split_digits' and 'pmnist'"),
            (("nowhere",), "no run is called 'nowhere'"),
        ],
    )
    def test_refused(self, command: Command, names: tuple[str, ...], said: str) -> None:
        answer = command("compare", "split_digits-quick-naive-seed0", *names, "--results", RECORDS)
        assert (answer.status, answer.out) == (2, "") and said in answer.err and "Traceback" not in answer.err


#: Accuracies by seed. The others are below the first by differences that are clear alone, and not among many.
FIRST, UNCLEAR = (0.90, 0.91, 0.92, 0.93), (0.84, 0.87, 0.85, 0.90)


class TestOverSeeds:
    @pytest.fixture
    def results(self, tmp_path: Path, put: Put) -> Path:
        """Runs of six strategies on four seeds; run-001 is the first's, run-005 the next one's, and so on."""
        for place in range(6):
            for seed, acc in enumerate(FIRST if place == 0 else UNCLEAR):
                task = {"task_order": (0,), "task_names": ("all",), "accuracy_matrix": ((acc,),)}
                put(seed, acc, strategy=f"s{place}", **task)
        return tmp_path

    def test_differences_are_to_the_first(self, results: Path) -> None:
        """Of all metrics that were measured, whichever run of a configuration is named."""
        found = compare_over_seeds(leaderboards(results), ["run-003", "run-008", "run-005"])
        assert found is not None
        assert (found.one.configuration, [row.configuration for row in found.others]) == ("s0", ["s1"])
        assert list(found.metrics) == [name for name in COMPARED_BY if name in found.one.record.metrics]
        assert found.metrics["acc"][0].by_seed == pytest.approx({0: -0.06, 1: -0.04, 2: -0.07, 3: -0.03})

    @pytest.mark.parametrize(("runs"), [("run-001", "run-002"), ("run-001", "nothing"), ("run-001", "elsewhere")])
    def test_no_comparison(self, results: Path, put: Put, runs: tuple[str, ...]) -> None:
        """Of one configuration, of a run that is not there, and of runs of two leaderboards."""
        put(0, strategy="s1", benchmark="other", run_id="elsewhere")
        assert compare_over_seeds(leaderboards(results), runs) is None

    def test_command(self, command: Command, results: Path) -> None:
        out = command("compare", "--results", results, "run-001", "run-005").out
        below = " ".join(out.partition("over 4 common seeds: s1 less s0")[2].split())
        assert "acc (%) -5.00 -7.91 to -2.09" in below and "0.0120 significant" in below
        asked = ("run-001", "run-005", "run-009", "--format=json")
        found = json.loads(command("compare", "--results", results, *asked).out)
        assert [document["runs"][1] for document in found["runs"]] == ["run-005", "run-009"]
        said = found["over_seeds"]["others"][0]["metrics"]["acc"]
        assert (said["pairs"], said["comparisons"], said["verdict"]) == (4, 2, "significant")
        assert "over seeds: no comparison" in command("compare", "--results", results, "run-001", "run-002").out

    def test_what_does_not_vary_is_not_tested(self, command: Command, results: Path) -> None:
        """Equal in every seed, or different by the same: no p value says more."""
        out = command("compare", "--results", results, "run-009", "run-005", "run-001").out
        told = [" ".join(part.split()) for part in out.split("over 4 common seeds: ")[1:]]
        assert "acc (%) 0.00 - - - equal in every seed" in told[0]
        assert difference_cells(compare_paired([({0: 3.0, 1: 4.0}, {0: 1.0, 1: 2.0})])[0], METRICS["params_total"]) == (
            *("+0.000", "-", "-", "-"),
            "same difference in every seed",
        )


#: Mean accuracies on each benchmark: a is always the best of four, the others change places.
TABLE = {
    "one": {"a": 0.90, "b": 0.80, "c": 0.70, "d": 0.60},
    "two": {"a": 0.80, "b": 0.60, "c": 0.70, "d": 0.50},
    "three": {"a": 0.70, "b": 0.60, "c": 0.60, "d": 0.20},
    "four": {"a": 0.95, "b": 0.90, "c": 0.80, "d": 0.10},
}


class TestOverBenchmarks:
    @pytest.fixture
    def results(self, tmp_path: Path, put: Put) -> Path:
        """Two seeds of each of the table, which are above and below its mean by as much."""
        for benchmark, accuracies in TABLE.items():
            for strategy, acc in accuracies.items():
                for seed, side in enumerate((0.01, -0.01)):
                    put(seed, acc + side, strategy=strategy, benchmark=benchmark)
        return tmp_path

    @staticmethod
    def compared(results: Path, metric: str = "acc") -> BenchmarkComparison:
        (found,) = compare_over_benchmarks(leaderboards(results), metric)
        return found

    def test_means_over_seeds_are_ranked(self, results: Path) -> None:
        """Four blocks, not eight: each benchmark counts once, whatever the number of seeds."""
        found = self.compared(results)
        assert found.ranks.benchmarks == ("four", "one", "three", "two") and found.excluded == ()
        ranks = {row.configuration: dict(row.ranks) for row in found.ranks.rows}
        assert list(ranks) == ["a", "b", "c", "d"] and ranks["b"] == {"one": 2, "two": 3, "three": 2.5, "four": 2}
        verdicts = [row.verdict for row in found.ranks.rows]
        assert verdicts == [None, "not significant", "not significant", "significant"]
        assert self.compared(results, "forgetting").ranks.rows[0].configuration == "d"  # the least is the best

    def test_largest_table_without_gaps(self, results: Path, put: Put) -> None:
        """What is on one benchmark only, and a benchmark that has one of them, are left out and told; references."""
        put(0, 0.99, strategy="once", benchmark="one")
        put(0, 0.99, strategy="a", benchmark="five")
        put(0, strategy="unmeasured", benchmark="one", metrics={})
        for benchmark in TABLE:
            put(0, 0.99, strategy="joint", benchmark=benchmark)
        found = self.compared(results)
        assert (set(found.rows), found.ranks.benchmarks) == ({"a", "b", "c", "d"}, ("four", "one", "three", "two"))
        assert found.excluded == ("a (five)", "once (one, seeds 0)", "unmeasured (one, seeds 0)")

    def test_only_common_seeds_are_ranked(self, results: Path, put: Put, command: Command) -> None:
        """A third seed, on which all is the other way round, does not count; who has too few is told."""
        put(2, 0.99, strategy="d", benchmark="one")
        put(2, 0.01, strategy="a", benchmark="two")
        for benchmark in TABLE:
            put(0, 0.99, strategy="once", benchmark=benchmark)
        found = self.compared(results)
        assert [row.average_rank for row in found.ranks.rows] == [1, 2.375, 2.625, 4]
        assert found.seeds == ({0, 1},) * 4 and found.means["one"] == pytest.approx(TABLE["one"])
        assert found.excluded == tuple(f"once ({benchmark}, seeds 0)" for benchmark in sorted(TABLE))
        text = command("leaderboard", "--results", results, "--ranks").out
        assert "one: means and ranks over the seeds that all have, 0-1" in text

    def test_options_of_the_protocol_make_no_other_configuration(self, tmp_path: Path, put: Put) -> None:
        """One chosen by a protocol, or left at its default, is the same; one chosen by the user is not."""
        for benchmark, strength in (("one", 5), ("two", 7), ("three", None)):
            layer: dict[str, Any] = {"strategies": {"ewc": {"strength": strength}}} if strength else {}
            fields = {"benchmark": benchmark, "protocol_settings": layer}
            put(0, 0.5, strategy="ewc", options={"strength": strength or 1, "backbone": "mlp"}, **fields)
            put(0, 0.6, strategy="naive", options={"backbone": "mlp"}, **fields)
            put(0, 0.7, strategy="naive", options={"backbone": "alexnet"}, **fields)
            if strength:
                put(0, 0.9, strategy="ewc", options={"strength": 9, "backbone": "mlp"}, **fields)
        found = self.compared(tmp_path)
        assert set(found.rows) == {"ewc", "naive (backbone=mlp)", "naive (backbone=alexnet)"}
        assert len(found.excluded) == 2 and all("strength=9" in name for name in found.excluded)

    def test_tuned_options_make_no_other_configuration(self, tmp_path: Path, put: Put) -> None:
        """What tuning chose may differ by benchmark, or be the default; the user's own may not."""
        known = {"id": "x", "sha256": "0" * 64, "method": "first-tasks:3", "runs": 1, "image_passes": 1}
        for benchmark, alpha in (("one", 0.5), ("two", 0.7), ("three", None)):
            fields: dict[str, Any] = {"strategy": "seu", "searcher": "mdl", "benchmark": benchmark}
            put(0, 0.7, benchmark=benchmark)
            if alpha:
                fields["tuned"] = known | {"options": {"searcher.alpha": alpha}}
                put(0, 0.6, searcher_options={"alpha": 0.9}, **fields)
            put(0, 0.5, searcher_options={"alpha": alpha or 0.1}, **fields)
        found = self.compared(tmp_path)
        assert [row.record.searcher_options["alpha"] for row in found.rows["seu + mdl"]] == [0.5, 0.1, 0.7]
        assert len(found.excluded) == 2 and all("alpha=0.9" in name for name in found.excluded)

    def test_each_protocol_and_scenario_by_itself(self, results: Path, put: Put) -> None:
        for benchmark in ("one", "two"):
            for strategy in ("a", "b"):
                for fields in ({"protocol": "paper"}, {"scenario": "class"}):
                    put(0, TABLE[benchmark][strategy], strategy=strategy, benchmark=benchmark, **fields)
        found = compare_over_benchmarks(leaderboards(results))
        places = ["protocol paper", "protocol quick", "protocol quick, class-incremental"]
        assert [each.place for each in found] == places
        assert [row.verdict for row in found[0].ranks.rows] == [None, "too few benchmarks"]

    @pytest.mark.parametrize("benchmarks", [("one",), ("one", "two")])
    def test_nothing_to_compare(self, tmp_path: Path, put: Put, benchmarks: tuple[str, ...]) -> None:
        """One benchmark, or one configuration; another scenario is no other benchmark."""
        for benchmark in benchmarks:
            put(0, strategy="a", benchmark=benchmark)
        put(0, strategy="b", benchmark="one")
        put(0, strategy="b", benchmark="two", scenario="class")
        assert compare_over_benchmarks(leaderboards(tmp_path)) == []

    def test_command(self, command: Command, results: Path) -> None:
        answer = command("leaderboard", "--results", results, "--ranks")
        lines = {line.split()[0]: line.split() for line in answer.out.splitlines() if line.strip()}
        assert lines["b"][1:2] == ["2.38"] and lines["b"][-4:] == ["90.00", "80.00", "60.00", "60.00"]
        assert lines["a"][1:5] == ["1.00", "-", "the", "best"] and "Friedman's test: chi-squared" in answer.out
        (found,) = json.loads(command("leaderboard", "--results", results, "--ranks=acc", "--format=json").out)
        assert (found["protocol"], found["metric"], found["control"]) == ("quick", "acc", "a")
        for words, said in ((["--ranks=ac"], "did you mean 'acc'"), (["--ranks", "--format=md"], "no --format md")):
            answer = command("leaderboard", "--results", results, *words)
            assert answer.status == 2 and said in answer.err
        assert "no two" in command("leaderboard", "--results", results, "--ranks", "--benchmark", "one").out


def test_published_runs(command: Command) -> None:
    naive, seu = (f"split_digits-quick-{name}-seed0" for name in ("naive", "seu"))
    answer = command("compare", naive, seu, "--results", RECORDS, "--format", "json")
    (found,) = json.loads(answer.out)["runs"]
    records = {record.run_id: record for record in read_records(RECORDS) if isinstance(record, Record)}
    for side, run_id in enumerate(found["runs"]):
        matrix = records[run_id].accuracy_matrix
        assert [task["final"][side] for task in found["tasks"]] == list(matrix[-1])
        falls = [task["forgetting"][side] for task in found["tasks"]]
        assert falls[-1] is None and sum(falls[:-1]) / 4 == pytest.approx(forgetting(matrix))
        seconds = sum(task["seconds"][side] for task in found["tasks"])
        assert seconds == pytest.approx(records[run_id].metrics["train_seconds"])
    text = command("compare", naive, seu, "--results", RECORDS)
    assert (text.status, text.err) == (0, "")
    for part in ("accuracy of each task (%)", "classes 4-5", "points", "options.warm_start", "naive"):
        assert part in text.out
