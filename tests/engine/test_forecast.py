"""Progress of a run, on disk too, and its time: by image passes, or by the first batches of each stage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.records import a_record

import seu_bench
from seu_bench.engine.forecast import (
    PROGRESS_NAME,
    Forecast,
    ProgressFile,
    RunProgress,
    Speed,
    measure_speed,
    read_progress,
)
from seu_bench.errors import ResultsError, RunError
from seu_bench.results.record import StageRecord, record_path
from seu_bench.testing.trial import Trial
from seu_bench.training.interfaces import Cost, StageCost
from seu_bench.training.stage import EpochReport, StageProgress


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def report(passes: int, *, task: int = 0, done: bool = False) -> StageProgress:
    return StageProgress("training", task, 1, 4, EpochReport(0.5, None), passes, 2.0, done)


def test_forecast() -> None:
    """Seconds left are the image passes left over the speed so far; stages that ended count once."""
    clock = Clock()
    forecast = Forecast(1000, clock)
    assert forecast.left is None
    forecast.see(report(100))
    assert forecast.left is None  # no time has passed
    clock.now += 10
    assert (forecast.passed, forecast.left) == (100, pytest.approx(90))
    forecast.see(report(200, done=True))
    clock.now += 10
    assert (forecast.passed, forecast.left) == (200, pytest.approx(80))
    forecast.see(report(50, task=1))
    assert (forecast.passed, forecast.left) == (250, pytest.approx(60))


def test_forecast_of_a_run_that_goes_on() -> None:
    """Image passes of an earlier attempt count as done, and say nothing of the speed."""
    clock = Clock()
    forecast = Forecast(1000, clock, before=300)
    forecast.see(report(100))
    assert (forecast.passed, forecast.left) == (400, None)
    forecast.see(report(200))
    clock.now += 10
    assert (forecast.passed, forecast.left) == (500, pytest.approx(50))


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


# --- on disk

REPORT = StageProgress("training", 1, 3, 8, EpochReport(0.5, 0.75), 100, 1.0)


def cost() -> Cost:
    return Cost((10, 10), (10, 10), (5, 5), (5, 5), ())


def a_file(folder: Path, clock: list[float], seen: list[StageProgress]) -> ProgressFile:
    path = folder / PROGRESS_NAME
    return ProgressFile(path.write_text, seen.append, lambda: clock[0])


def test_written_once_a_second(tmp_path: Path) -> None:
    """And at once where a stage begins; every report is passed on."""
    clock, seen = [0.0], list[StageProgress]()
    file = a_file(tmp_path, clock, seen)
    file.begin(a_record(task_names=("a", "b")), cost())
    assert read_progress(tmp_path) == RunProgress(tasks=2)
    for seconds, epoch, written in ((0.1, 3, 3), (0.5, 4, 3), (1.0, 5, 3), (1.2, 6, 6), (2.1, 7, 6)):
        clock[0] = seconds
        file(replace(REPORT, epoch=epoch))
        found = read_progress(tmp_path)
        assert found is not None and found.epoch == written
    file(replace(REPORT, stage="evaluation", epoch=0))
    found = read_progress(tmp_path)
    assert found is not None
    assert (found.task, found.stage, found.epoch, found.accuracy) == (1, "evaluation", 0, 0.75)
    assert len(seen) == 6


def test_resumed(tmp_path: Path) -> None:
    """Image passes of the attempt before count, and the first task is the one after those evaluated."""
    stages = [StageRecord(name=name, task=0, epochs=1, seconds=1.0, image_passes=50) for name in ("t", "evaluation")]
    a_file(tmp_path, [0.0], []).begin(a_record(task_names=("a", "b"), stages=tuple(stages)), cost())
    found = read_progress(tmp_path)
    assert found is not None
    assert (found.task, found.passed) == (1, 100)


def test_full_disk_stops_nothing() -> None:
    """Who computes is not disturbed by a file that only others need."""

    def full(_: str) -> None:
        raise ResultsError("No space left on device")

    seen: list[StageProgress] = []
    file = ProgressFile(full, seen.append)
    file.begin(a_record(task_names=("a", "b")), cost())
    file(replace(REPORT, report=EpochReport(None, float("nan"))))
    assert len(seen) == 1


@pytest.mark.parametrize("text", ["", "{", "[" * 99_999, '{"format": "other"}', '{"task": "x"}', '{"task": 1e99}'])
def test_unreadable(tmp_path: Path, text: str) -> None:
    """What is no progress is none."""
    (tmp_path / PROGRESS_NAME).write_text(text)
    assert read_progress(tmp_path) is None


def test_of_a_run(tiny: Path, tmp_path: Path) -> None:
    """There is none beside a finished run; a failed one keeps where it was, until it is finished."""
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
    assert progress is not None
    assert (progress.task, progress.tasks) == (0, 5)
