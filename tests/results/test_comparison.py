"""Two runs compared: by hand, on published runs, and refused where they must not be mixed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from support.commands import Command
from support.shown import ODD, a_record, rendered

from seu_bench.cli.compare import comparison_tables
from seu_bench.errors import RequestError
from seu_bench.metrics import forgetting
from seu_bench.results.comparison import compare
from seu_bench.results.record import Record, StageRecord
from seu_bench.results.record_files import read_records
from seu_bench.results.record_parts import Environment

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


class TestValues:
    def test_by_hand(self) -> None:
        other = a_run(run_id="other", accuracy_matrix=((0.7, None), (0.7, 0.9)), params_total=(100, 100))
        other = other.model_copy(update={"memory_bytes": ()})  # of an older version
        found = compare(a_run(), other)
        assert [(task["task"], task["name"]) for task in found.tasks] == [(1, "one"), (0, "zero")]
        assert found.same_order
        first, last = (task for task in found.tasks)
        assert (first["final"][:2], first["learned"][:2]) == ((0.6, 0.7), (0.9, 0.7))
        assert first["forgetting"][:2] == (pytest.approx(0.3), 0.0)
        assert (first["parameters"][:2], first["seconds"][:2]) == ((100, 100), (10.0, 10.0))
        assert (last["final"][:2], last["forgetting"][:2]) == ((0.8, 0.9), (None, None))
        assert (last["parameters"][:2], last["seconds"][:2]) == ((150, 100), (25.0, 25.0))
        assert (first["memory"][:2], last["memory"][:2]) == ((400, None), (900, None))
        assert found.metrics["acc"][:2] == (pytest.approx(0.7), pytest.approx(0.8))
        assert "fwt" not in found.metrics
        assert found.settings == {}

    def test_tasks_meet_whatever_the_order(self) -> None:
        other = a_run(seed=8, task_order=(0, 1), task_names=("zero", "one"), accuracy_matrix=((0.5, None), (0.4, 1.0)))
        found = compare(a_run(), other)
        assert not found.same_order
        by_task = {task["task"]: task for task in found.tasks}
        assert by_task[0]["final"][:2] == (0.8, 0.4) and by_task[0]["learned"][:2] == (0.8, 0.5)
        assert by_task[1]["final"][:2] == (0.6, 1.0) and by_task[1]["seconds"][:2] == (10.0, 25.0)
        assert by_task[0]["forgetting"][:2] == (None, pytest.approx(0.1))
        assert {"seed", "task_order"} == set(found.settings)
        assert "another order" in rendered(comparison_tables(found))

    def test_what_was_not_measured(self) -> None:
        """A run that was stopped, and one that is evaluated once, as joint is."""
        stopped = a_run(status="interrupted", accuracy_matrix=((0.9, None),), params_total=(100,))
        joint = a_run(accuracy_matrix=((None, None), (0.9, math.inf)), params_total=(70,), metrics={"acc": math.inf})
        first, last = (task for task in compare(stopped, joint).tasks)
        assert (first["final"][:2], first["learned"][:2]) == ((None, 0.9), (0.9, None))
        assert (last["final"][:2], last["learned"][:2]) == ((None, None), (None, None))
        assert (first["parameters"][:2], last["parameters"][:2]) == ((100, None), (None, 70))
        assert compare(stopped, joint).metrics.keys() == {
            key for key, value in stopped.metrics.items() if value is not None
        }
        text = rendered(comparison_tables(compare(stopped, joint)))
        assert "status" in text and "inf" not in text

    def test_settings_by_name(self) -> None:
        other = a_run(
            strategy="naive",
            searcher=None,
            searcher_options={},
            options={"decay": 0.5, "rule": "sum", "epochs": None},
            protocol_settings={"training": {"epochs": 3}},
            precision="bf16",
            environment=Environment(device="cuda", versions={"torch": "3"}),
        )
        settings = compare(a_run(environment=Environment(versions={"torch": "2"})), other).settings
        assert settings == {
            "strategy": ("seu", "naive"),
            "searcher": ("mdl", None),
            "precision": ("float32", "bf16"),
            "options.decay": ("0.0003", "0.5"),
            "searcher.alpha": ("0.01", None),
            "protocol.training.epochs": (None, "3"),
            "environment.device": ("cpu", "cuda"),
            "environment.versions.torch": ("2", "3"),
        }

    def test_all_the_same(self) -> None:
        assert "settings: all the same" in rendered(comparison_tables(compare(a_run(), a_run())))


class TestRefused:
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


class TestCommand:
    def test_published_runs(self, command: Command) -> None:
        naive, seu = (f"split_digits-quick-{name}-seed0" for name in ("naive", "seu"))
        answer = command("compare", naive, seu, "--results", RECORDS, "--format", "json")
        (found,) = json.loads(answer.out)["runs"]
        assert [run.rpartition("-")[0] for run in found["runs"]] == [naive, seu]
        assert found["same_order"]
        records = {record.run_id: record for record in read_records(RECORDS) if isinstance(record, Record)}
        for side, run_id in enumerate(found["runs"]):
            matrix = records[run_id].accuracy_matrix
            assert [task["final"][side] for task in found["tasks"]] == list(matrix[-1])
            assert [task["learned"][side] for task in found["tasks"]] == [matrix[task][task] for task in range(5)]
            falls = [task["forgetting"][side] for task in found["tasks"]]
            assert falls[-1] is None and sum(falls[:-1]) / 4 == pytest.approx(forgetting(matrix))
            assert [task["parameters"][side] for task in found["tasks"]] == list(records[run_id].params_total)
            seconds = sum(task["seconds"][side] for task in found["tasks"])
            assert seconds == pytest.approx(records[run_id].metrics["train_seconds"])
        for task in found["tasks"]:
            assert task["final"][2] == pytest.approx(task["final"][1] - task["final"][0])
        text = command("compare", naive, seu, "--results", RECORDS)
        assert (text.status, text.err) == (0, "")
        assert "\x1b" not in text.out
        for part in ("accuracy of each task (%)", "classes 4-5", "points", "options.warm_start", "naive"):
            assert part in text.out

    def test_more_than_two(self, command: Command) -> None:
        names = [f"split_digits-quick-{name}-seed1" for name in ("naive", "ewc", "joint")]
        answer = command("compare", *names, "--results", RECORDS)
        assert answer.out.count("1: split_digits-quick-naive-seed1") == 2
        assert answer.out.count("2: split_digits-quick-") == 2

    def test_refused(self, command: Command) -> None:
        one = "split_digits-quick-naive-seed0"
        for names, said in (
            ((one,), "one run cannot be compared"),
            ((one, "pmnist-quick-agem-seed0"), "benchmark 'split_digits' and 'pmnist'"),
            ((one, "nowhere"), "no run is called 'nowhere'"),
        ):
            answer = command("compare", *names, "--results", RECORDS)
            assert (answer.status, answer.out) == (2, "")
            assert said in answer.err and "Traceback" not in answer.err

    def test_whatever_a_record_holds(self) -> None:
        odd = a_run(run_id="odd", task_names=(ODD, "a\x1b[2Jb"), strategy="c\x1b]0;x\x07", options={ODD: "\x1b[31m"})
        text = rendered(comparison_tables(compare(odd, a_run())), width=300)
        assert ODD in text and not any(letter in text for letter in "\x1b\x07")
        narrow = rendered(comparison_tables(compare(odd, a_run())))
        assert max(map(len, narrow.splitlines())) <= 80 and "…" not in narrow
