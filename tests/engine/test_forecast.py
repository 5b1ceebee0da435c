"""Where a run is, on disk; its time, by the first batches of each stage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.records import a_record

import seu_bench
from seu_bench.engine.forecast import PROGRESS_NAME, ProgressFile, RunProgress, Speed, measure_speed, read_progress
from seu_bench.errors import RunError
from seu_bench.results.record import StageRecord, record_path
from seu_bench.testing.trial import Trial
from seu_bench.training.interfaces import Cost, StageCost
from seu_bench.training.stage import EpochReport, StageProgress


def test_prediction_by_operations() -> None:
    """Seconds per operation of the stage; per image where operations are not known; all stages for one not measured."""
    speed = Speed({"search": (2.0, 100, 10), "training": (1.0, 400, 20)})
    stages = (
        StageCost("search", 0, 1000, 0, 1000, 500),
        StageCost("training", 0, 50, 10),
        StageCost("fisher", 0, 30, 0, 250, 250),
        StageCost("evaluation", 0, 0, 10**9),
    )
    cost = Cost((1,), (1,), (1,), (1,), stages)
    assert speed.predict(cost) == 1000 * 2 / 100 + 60 * 1 / 20 + 250 * 3 / 500
    assert speed.predict(replace(cost, stages=())) == 0


@pytest.mark.parametrize(("strategy", "stages"), [("seu", {"search", "training"}), ("ewc", {"training", "fisher"})])
def test_speed_is_measured_of_every_stage(strategy: str, stages: set[str]) -> None:
    """Of a strategy that searches, and of one that does not; of none for which there is no memory."""
    run = Trial(strategy).resolved("tiny_two")
    cost = run.cost(run.context(run.plan()))
    speed = measure_speed(run, cost)
    assert speed is not None and set(speed.measured) == stages
    assert speed.predict(cost) > 0
    assert measure_speed(run, replace(cost, params_total=(10**13,))) is None


REPORT = StageProgress("training", 1, 3, 8, EpochReport(), 150, 1.0)
COST = Cost((10,), (10,), (5,), (5,), (StageCost("training", 0, 1000, 0),))


def test_progress_is_written_once_a_second(tmp_path: Path) -> None:
    """And at once where a stage begins; time left is by the speed of this attempt, once there are two reports."""
    stage = StageRecord(name="training", task=0, epochs=1, seconds=1.0, image_passes=100)
    clock = [0.0]
    file = ProgressFile(tmp_path, a_record(task_names=("a", "b"), stages=(stage,)), COST, lambda: clock[0])
    assert read_progress(tmp_path) is None
    for seconds, epoch, written, left in ((0.1, 3, 3, None), (0.6, 4, 3, None), (2.1, 5, 5, 13.0), (3.0, 6, 5, 13.0)):
        clock[0] = seconds
        file(replace(REPORT, epoch=epoch, image_passes=50 * epoch))
        expected = RunProgress(task=1, stage="training", epoch=written, epochs=8, remaining=left)
        assert read_progress(tmp_path) == expected
    file(replace(REPORT, stage="evaluation", epoch=0))
    found = read_progress(tmp_path)
    assert found is not None and (found.stage, found.epoch) == ("evaluation", 0)


def test_progress_on_a_full_disk(tmp_path: Path) -> None:
    """Who computes is not disturbed by a file that only others need."""
    (tmp_path / "folder").touch()
    ProgressFile(tmp_path / "folder", a_record(task_names=("a", "b")), COST)(REPORT)
    assert read_progress(tmp_path / "folder") is None


@pytest.mark.parametrize("text", ["", "{", "[" * 99_999, "{}", '{"format": "other"}', '{"task": "x"}'])
def test_progress_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / PROGRESS_NAME).write_text(text)
    assert read_progress(tmp_path) is None


def test_progress_of_a_run(tiny: Path, tmp_path: Path) -> None:
    """There is none beside a finished run; a failed one keeps where it was."""
    record = seu_bench.run("tiny", protocol="smoke", limit=8, results=tmp_path)
    folder = record_path(tmp_path, record.run_id).parent
    assert sorted(path.name for path in folder.iterdir()) == ["model.safetensors", "record.json"]
    (folder / PROGRESS_NAME).write_text("left by a process that was killed when it had finished")
    assert seu_bench.run("tiny", protocol="smoke", limit=8, results=tmp_path) == record
    assert sorted(path.name for path in folder.iterdir()) == ["model.safetensors", "record.json"]
    with pytest.raises(RunError):
        seu_bench.run("tiny", protocol="smoke", limit=8, options={"fault": "raise"}, results=tmp_path)
    (failed,) = [path for path in (tmp_path / "runs").iterdir() if path != folder]
    progress = read_progress(failed)
    assert progress is not None and progress.task == 0
