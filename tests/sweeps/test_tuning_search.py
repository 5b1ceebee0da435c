"""A tuning as a whole: no test image is read, the best trial is chosen, what was made is not made again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from support.commands import Install
from support.tuning import MODULES, POINTS

import seu_bench
from seu_bench.config.tuned import TunedFile
from seu_bench.engine.stopping import StopRequest
from seu_bench.errors import Interruption, RunError, SeuBenchError, SpecError
from seu_bench.plugin.registry import Registry
from seu_bench.results.building import make_leaderboards
from seu_bench.results.labels import why_not_ranked
from seu_bench.results.record import Record
from seu_bench.results.record_files import read_records
from seu_bench.sweeps.driver import JobResult, SweepReport
from seu_bench.sweeps.plan import SweepPlan
from seu_bench.sweeps.tune_spec import make_tune_spec
from seu_bench.sweeps.tuning import run_tuning


@pytest.fixture(autouse=True)
def stranger(install: Install) -> None:
    """A stranger's strategy, executor and sealed data set."""
    install("a-stranger", POINTS, MODULES)


ASKED: dict[str, Any] = {
    "strategy": "tiny",
    "benchmark": "sealed",
    "space": {"learning_rate": "0.0001,0.2"},
    "options": {"epochs": 4},
    "method": "first-tasks:2",
    "seeds": "100-101",
    "executor": "in_turn",
    "device": "cpu",
}


def tuning(results: Path, **more: Any) -> Any:
    return seu_bench.tune(results=results, **ASKED | more)


def written(results: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in results.glob("tuning/runs/*/record.json")}


def same(one: TunedFile, other: TunedFile) -> bool:
    """Whether two files are equal but for processor seconds, which are measured anew."""

    def plain(file: TunedFile) -> dict[str, Any]:
        return file.model_dump(exclude={"sha256": True, "cost": {"cpu_seconds"}})

    return plain(one) == plain(other)


@pytest.mark.long
def test_test_images_are_never_read(tmp_path: Path) -> None:
    """A run reads them and fails; the tuning of its options does not."""
    with pytest.raises((RunError, AssertionError, SeuBenchError), match="test images were"):
        seu_bench.run("tiny", "sealed", results=tmp_path)
    for method in ("first-tasks:2", "whole-stream"):
        file = tuning(tmp_path, method=method, id=method.replace(":", "-")).file
        assert file is not None
        assert len(file.trials[0].runs[0]["accuracy_matrix"]) == (2 if method == "first-tasks:2" else 3)


def test_choice_and_cost(tmp_path: Path) -> None:
    """The best mean over seeds of the mean accuracy after the last task; all runs are counted, none is ranked."""
    result = tuning(tmp_path)
    file = TunedFile.read(tmp_path / "tuned" / "sealed-paper-tiny.toml")
    assert result.file == file
    assert file.options == {"epochs": 4, "learning_rate": 0.2}
    scores = [fmean(fmean(run["accuracy_matrix"][-1]) for run in trial.runs) for trial in file.trials]
    assert [trial.score for trial in file.trials] == pytest.approx(scores, abs=1e-6)
    assert scores[0] < scores[1] == pytest.approx(file.score, abs=1e-6)
    records = {record.run_id: record for record in read_records(tmp_path / "tuning") if isinstance(record, Record)}
    assert {run["run_id"] for trial in file.trials for run in trial.runs} == records.keys()
    assert (file.cost.runs, file.seeds) == (4, (100, 101))
    assert file.cost.image_passes == sum(stage.image_passes for record in records.values() for stage in record.stages)
    assert not any(record.may_be_ranked or record.weights_sha256 for record in records.values())
    assert "measured on validation images" in (why_not_ranked(next(iter(records.values()))) or "")
    assert not make_leaderboards(tmp_path / "tuning").boards
    assert not (tmp_path / "runs").exists()


def test_resumed(tmp_path: Path) -> None:
    """What is finished stays; what is lost is made again; the file is the same."""
    first = tuning(tmp_path / "a").file
    lost = tuning(tmp_path / "b", space={"learning_rate": "0.2"}, id="part")
    before = written(tmp_path / "b")
    assert len(before) == 2
    again = tuning(tmp_path / "b")
    assert {name: time for name, time in written(tmp_path / "b").items() if name in before} == before
    assert len(lost.trials) == 1
    assert same(first, again.file)
    assert again.file.trials[1] == lost.file.trials[0]
    for run_id in before:
        (tmp_path / "b" / "tuning" / "runs" / run_id / "record.json").unlink()
    assert same(tuning(tmp_path / "b").file, first)


def test_another_tuning_is_not_replaced(tmp_path: Path) -> None:
    """A file of the same name from other seeds stays, unless it is to be replaced."""
    path = tmp_path / "tuned" / "sealed-paper-tiny.toml"
    first = tuning(tmp_path, seeds="100").file
    with pytest.raises(SpecError, match="which differs in seeds"):
        tuning(tmp_path, seeds="101")
    assert TunedFile.read(path) == first
    assert tuning(tmp_path, seeds="101", replace=True).file == TunedFile.read(path) != first
    elsewhere = tuning(tmp_path, seeds="100", output=tmp_path / "x").file
    assert TunedFile.read(tmp_path / "x" / "sealed-paper-tiny.toml") == elsewhere


def test_failures(tmp_path: Path) -> None:
    """A trial that fails on one seed has no score; where all do, no file is written."""
    space = {"fault": "none,diverge"}
    file = tuning(tmp_path, space=space).file
    assert [trial.score is None for trial in file.trials] == [False, True]
    assert [run["status"] for run in file.trials[1].runs] == ["failed", "failed"]
    assert file.options["fault"] == "none"
    none = tuning(tmp_path, space={"fault": "diverge"}, id="none")
    assert none.file is None
    assert not (tmp_path / "tuned" / "none.toml").exists()
    with pytest.raises(SeuBenchError, match="first-tasks:3 is the whole stream"):
        tuning(tmp_path, method="first-tasks:3")
    with pytest.raises(SeuBenchError, match="'lerning_rate' is not an option"):
        tuning(tmp_path, space={"lerning_rate": "1,2"})


@pytest.mark.long
def test_used_by_runs_and_sweeps(tmp_path: Path) -> None:
    """Runs and sweeps take the file; seeds of the tuning are refused; records tell what it cost."""
    file = tuning(tmp_path, benchmark="open", options={}).file
    record = seu_bench.run("tiny", "open", results=tmp_path, tuned="open-paper-tiny")
    assert record.options["learning_rate"] == 0.2
    assert record.tuned is not None
    assert (record.tuned.sha256, record.tuned.image_passes) == (file.sha256, file.cost.image_passes)
    swept = {"strategy": "tiny,naive", "benchmark": "open", "results": tmp_path, "executor": "in_turn"}
    result = seu_bench.sweep(**swept, seeds="0-1", tuned=[str(tmp_path / "tuned")])
    assert [job.record is not None and job.record.tuned is not None for job in result.jobs] == [True, False] * 2
    assert result.jobs[0].job.run_id == record.run_id
    for given in (tmp_path / "tuned", "open-paper-tiny"):
        with pytest.raises(SeuBenchError, match="seed 100 was tuned on"):
            seu_bench.sweep(**swept, seeds="99-101", tuned=[str(given)])
    with pytest.raises(SeuBenchError, match="no run is what a tuned file was tuned for"):
        seu_bench.sweep(**{**swept, "strategy": "naive"}, tuned=["open-paper-tiny"])


def test_optuna(tmp_path: Path) -> None:
    """Trials drawn one batch after another; resumed, the same ones."""
    pytest.importorskip("optuna")
    more = {"space": {"learning_rate": "0.0001..0.3:log"}, "sampler": "tpe", "trials": 3, "batch": 2, "seeds": "100"}
    file = tuning(tmp_path, **more).file
    assert len(file.trials) == 3
    before = written(tmp_path)
    assert same(tuning(tmp_path, **more).file, file)
    assert written(tmp_path) == before
    assert "optuna" in file.software


@pytest.mark.long
def test_stopped(tmp_path: Path) -> None:
    """Stopped between jobs, no file is there; the same call makes what is left, and the same file."""
    whole = tuning(tmp_path / "whole").file
    spec = make_tune_spec(ASKED | {"results": tmp_path / "part"})
    stop = StopRequest()

    @contextlib.contextmanager
    def show(plan: SweepPlan, _: int | None) -> Iterator[Any]:
        def hear(report: SweepReport) -> None:
            if isinstance(report, JobResult):
                stop.ask(Interruption("stopped by the test", 143))

        yield hear

    result = run_tuning(Registry(), spec, show, stop)
    assert result.file is None
    assert result.sweeps[-1].interruption is not None
    assert not (tmp_path / "part" / "tuned").exists()
    assert 0 < len(written(tmp_path / "part")) < 4
    assert same(tuning(tmp_path / "part").file, whole)
