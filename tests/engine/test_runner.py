"""One run: a record that is whole at every moment, whatever becomes of the strategy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from support.commands import Command, Install

import seu_bench
from seu_bench import hookimpl
from seu_bench.config.run import Request
from seu_bench.engine.resolve import resolve
from seu_bench.engine.runner import Outcome, execute
from seu_bench.errors import DataMissingError, OptionError, RunError
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import read_record, record_path
from seu_bench.results.record_metrics import without_times
from seu_bench.utils.hardware import usable_cores


def make(results: Path, *watchers: object, **asked: Any) -> Outcome:
    """A run of the strategy ``tiny`` on eight images per task."""
    registry = Registry()
    for watcher in watchers:
        registry.manager.register(watcher)
    fields = {"strategy": "tiny", "protocol": "smoke", "limit": 8, "results": results, "device": "cpu"}
    return execute(registry, resolve(registry, Request(**(fields | asked))))


def files(results: Path) -> list[str]:
    return sorted(str(path.relative_to(results)) for path in results.rglob("*") if path.is_file())


def test_record_of_a_run(tiny: Path, tmp_path: Path) -> None:
    """The record has what was asked, what was measured and where; nothing else is written."""
    outcome = make(tmp_path, options={"epochs": 3})
    record = outcome.record
    assert outcome.path == record_path(tmp_path, record.run_id)
    assert files(tmp_path) == [f"runs/{record.run_id}/{name}" for name in ("model.safetensors", "record.json")]
    assert read_record(outcome.path) == record
    assert (record.status, record.error, outcome.reused) == ("finished", None, False)
    assert (record.strategy, record.benchmark, record.protocol, record.limit) == ("tiny", "split_digits", "smoke", 8)
    assert (record.options["epochs"], record.options["fault"]) == (3, "none")
    assert (record.ranked, record.may_be_ranked) == (False, False)
    assert sorted(record.task_order) == [0, 1, 2, 3, 4]
    assert record.task_classes == (2,) * 5
    for learned, row in enumerate(record.accuracy_matrix):
        assert [value is not None for value in row] == [task <= learned for task in range(5)]
    assert record.params_total == (8 * 65 + 5 * 18,) * 5
    assert record.params_active == (8 * 65 + 18,) * 5
    assert record.macs == (8 * 64 + 16,) * 5
    assert [(stage.name, stage.task, stage.epochs) for stage in record.stages] == [
        entry for task in range(5) for entry in (("training", task, 3), ("evaluation", task, 1))
    ]
    assert [stage.image_passes for stage in record.stages] == [48, 8, 48, 16, 48, 24, 48, 32, 48, 40]
    last = [value for value in record.accuracy_matrix[-1] if value is not None]
    assert record.metrics["acc"] == pytest.approx(sum(last) / 5, abs=1e-12)
    assert record.metrics["image_passes"] == 240
    assert record.metrics["peak_memory_bytes"] is None
    assert record.environment.device.startswith("cpu")
    assert {"torch", "avalanche-lib", "python"} <= set(record.environment.versions)


def test_finished_run_is_not_run_again(tiny: Path, tmp_path: Path) -> None:
    """Unless it is forced, or its record is damaged."""
    first = make(tmp_path)
    written = first.path.stat().st_mtime_ns
    again = make(tmp_path)
    assert again == Outcome(first.record, first.path, reused=True)
    assert first.path.stat().st_mtime_ns == written
    forced = make(tmp_path, restart=True)
    assert (forced.reused, without_times(forced.record)) == (False, without_times(first.record))
    assert first.path.stat().st_mtime_ns > written
    first.path.write_text(first.path.read_text()[:100])
    mended = make(tmp_path)
    assert (mended.reused, read_record(first.path)) == (False, mended.record)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("raise", "strategy 'tiny' of package a-stranger failed: ZeroDivisionError: this strategy is broken"),
        ("diverge", "the loss became nan in stage 'training' of task 1, epoch 1"),
    ],
)
def test_failing_strategy(command: Command, tiny: Path, tmp_path: Path, fault: str, said: str) -> None:
    """The record says why and keeps what was measured; the traceback lies beside it and not on the console."""
    asked = ("--strategy", "tiny", "--protocol", "smoke", "--limit", 8, "--results", tmp_path)
    answer = command("run", *asked, "-o", f"fault={fault}")
    assert answer.status == 3
    assert answer.out == ""
    assert "Traceback" not in answer.err
    assert answer.err.count(f"error: {said}\n  where: ") == 1
    assert "  hint: " in answer.err
    (folder,) = (tmp_path / "runs").iterdir()
    assert str(folder / "error.txt") in answer.err
    assert "Traceback" in (folder / "error.txt").read_text()
    record = read_record(folder)
    assert (record.status, record.error) == ("failed", said)
    assert record.accuracy_matrix[0][0] is not None
    assert set(record.accuracy_matrix[1]) == {None}
    assert (record.metrics["acc"], record.may_be_ranked) == (None, False)


@pytest.mark.parametrize("fault", ["build", "cost"])
def test_strategy_that_cannot_be_built(tiny: Path, tmp_path: Path, fault: str) -> None:
    """It fails like one that cannot be trained."""
    with pytest.raises(RunError, match="strategy 'tiny' of package a-stranger failed: LookupError: nothing to"):
        make(tmp_path, options={"fault": fault})
    (folder,) = (tmp_path / "runs").iterdir()
    assert read_record(folder).status == "failed"
    assert "LookupError" in (folder / "error.txt").read_text()


METRICS = """
from seu_bench import hookimpl

class Metric:
    summary = "a number"
    def __init__(self, answer):
        self.answer = answer
    def __call__(self, record):
        return self.answer(record)

@hookimpl
def register_metrics(register):
    register("best", Metric(lambda record: max(v for row in record.accuracy_matrix for v in row if v is not None)))
    register("tasks", Metric(lambda record: len(record.task_order)))
    register("nothing", Metric(lambda record: None))
    register("not_a_number", Metric(lambda record: float("nan")))
"""


@pytest.mark.parametrize(("answer", "problem"), [("1 / 0", "ZeroDivisionError"), ("'many'", "'many'")])
def test_broken_metric(tiny: Path, install: Install, tmp_path: Path, answer: str, problem: str) -> None:
    """A metric that fails is named in a warning and excluded; the run is not lost."""
    source = METRICS.replace("len(record.task_order)", answer)
    install("more-metrics", {"more": "more_metrics"}, {"more_metrics": source})
    with pytest.warns(RuntimeWarning, match=f"metric 'tasks' of package more-metrics is excluded: .*{problem}"):
        record = make(tmp_path).record
    assert (record.status, record.metrics["tasks"]) == ("finished", None)
    assert record.metrics["best"] is not None
    assert read_record(record_path(tmp_path, record.run_id)) == record


def test_refused_before_anything_is_written(tiny: Path, tmp_path: Path) -> None:
    """A strategy that finds fault with the request, or absent data, leaves no folder, however deep."""
    with pytest.raises(OptionError, match="genotype"):
        make(tmp_path / "a" / "b", strategy="seu", options={"genotype": "none"})
    with pytest.raises(DataMissingError):
        make_on_absent_data(tmp_path / "a" / "b", tmp_path / "no-data")
    assert list(tmp_path.iterdir()) == []


def make_on_absent_data(results: Path, data_root: Path) -> None:
    registry = Registry()
    fields = {"protocol": "smoke", "results": results, "data_root": data_root}
    execute(registry, resolve(registry, Request(strategy="tiny", benchmark="pmnist", **fields)))


class Threads:
    """Notes with how many threads a run computes, and what is said."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.notices: list[str] = []

    @hookimpl
    def stage_progress(self) -> None:
        self.threads.add(torch.get_num_threads())

    @hookimpl
    def run_notice(self, message: str) -> None:
        self.notices.append(message)


def test_other_threads_are_another_run(tiny: Path, tmp_path: Path) -> None:
    """One by default, which the run id does not name; more than cores are slow; the caller has its own again."""
    before, many, ids = torch.get_num_threads(), usable_cores() + 1, {}
    torch.set_num_threads(3)
    for threads, more in ((1, {}), (many, {"threads": many})):
        watcher = Threads()
        outcome = make(tmp_path, watcher, **more)
        assert watcher.threads == {threads} and torch.get_num_threads() == 3
        assert outcome.record.threads == outcome.record.environment.threads == threads
        assert [f"computes with {threads} threads" in notice for notice in watcher.notices] == [True] * (threads > 1)
        ids[threads] = outcome.record.run_id
    torch.set_num_threads(before)
    assert f"-threads{many}-" in ids[many] and "threads" not in ids[1]
    assert ids[1].rpartition("-")[2] != ids[many].rpartition("-")[2]


MAIN = (sys.executable, "-m", "seu_bench.cli.main")


@pytest.mark.long
def test_whoever_asks_on_whichever_machine(tmp_path: Path) -> None:
    """The same weights by the command, a sweep and Python, whatever the environment says of threads."""
    asked = ("--strategy", "naive", "--protocol", "smoke", "--device", "cpu")
    records = []
    for name, threads, what in (("one", "1", "run"), ("two", "2", "run"), ("sweep", "2", "sweep")):
        command = [*MAIN, what, *asked, "--results", str(tmp_path / name)]
        done = subprocess.run(
            command, env={**os.environ, "OMP_NUM_THREADS": threads}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        (path,) = (tmp_path / name / "runs").iterdir()
        records.append(read_record(path))
    records.append(seu_bench.run("naive", protocol="smoke", device="cpu", results=tmp_path / "python"))
    assert {record.environment.threads for record in records} == {1}
    assert len({record.weights_sha256 for record in records}) == 1
    assert len({record.run_id for record in records}) == 1


def test_same_seed_same_record(tiny: Path, tmp_path: Path) -> None:
    """Two runs of one seed differ in clocks alone; another seed is another run."""
    first, second = (make(tmp_path / name).record for name in "ab")
    assert without_times(first) == without_times(second)
    assert first != second
    other = make(tmp_path / "a", seed=1).record
    assert (other.accuracy_matrix, other.run_id) != (first.accuracy_matrix, first.run_id)
