"""Progress of a run on disk: where it is; nothing of it in the record, nothing left at the end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.records import a_record

import seu_bench
from seu_bench.engine.forecast import PROGRESS_NAME, ProgressFile, RunProgress, read_progress
from seu_bench.errors import ResultsError, RunError
from seu_bench.results.record import StageRecord, record_path
from seu_bench.training.costing import fixed_cost
from seu_bench.training.interfaces import Cost
from seu_bench.training.stage import EpochReport, StageProgress

REPORT = StageProgress("training", 1, 3, 8, EpochReport(0.5, 0.75), 100, 1.0)


def cost() -> Cost:
    return fixed_cost(10, (5, 5), [])


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
