"""The record's confusion between tasks: measured in the class-incremental scenario, kept by a run that is resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from seu_bench import hookimpl
from seu_bench.config.run import Request
from seu_bench.engine.recorder import RunRecorder
from seu_bench.engine.resolve import resolve
from seu_bench.engine.runner import execute
from seu_bench.engine.stopping import StopRequest
from seu_bench.errors import Interruption
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record
from seu_bench.results.record_files import find_record
from seu_bench.results.record_metrics import without_times
from seu_bench.training.stage import StageProgress

SMALL: dict[str, Any] = {"backbone": "mlp", "width": 0.05, "epochs": 1, "batch_size": 8}


def learned(
    results: Path,
    scenario: str,
    strategy: str = "naive",
    *,
    registry: Registry | None = None,
    stop: StopRequest | None = None,
    **asked: Any,
) -> Record:
    """The record of a run of fractions of a second on a few digits."""
    registry = registry or Registry()
    options = SMALL | {"benchmark.stream.scenario": scenario}
    given: dict[str, Any] = {"protocol": "smoke", "limit": 12, "results": results, "device": "cpu", "options": options}
    request = Request(strategy=strategy, **(given | asked))
    return execute(registry, resolve(registry, request), stop=stop).record


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    return learned(tmp_path_factory.mktemp("class"), "class")


def test_rows_are_the_test_images(record: Record) -> None:
    """Each once; what is right is of its own task."""
    assert [sum(row) for row in record.task_confusion] == [images for *_, images in record.task_images]
    for task, (row, accuracy) in enumerate(zip(record.task_confusion, record.accuracy_matrix[-1], strict=True)):
        assert accuracy is not None and row[task] >= round(accuracy * sum(row))
    told, errors = record.metrics["task_accuracy"], record.metrics["cross_task_errors"]
    assert told == pytest.approx(sum(row[i] / sum(row) for i, row in enumerate(record.task_confusion)) / 5)
    assert errors is not None and 0 <= errors <= 1


def test_trained_on_the_whole_stream(tmp_path: Path) -> None:
    """It is evaluated once, with the answers of all tasks."""
    found = learned(tmp_path, "class", "joint")
    assert [sum(row) for row in found.task_confusion] == [images for *_, images in found.task_images]
    assert found.metrics["task_accuracy"] is not None and found.metrics["avg_incremental_acc"] is None


@pytest.mark.parametrize("scenario", ["task", "domain"])
def test_other_scenarios_have_none(tmp_path: Path, scenario: str) -> None:
    """An answer there is no class of another task."""
    found = learned(tmp_path, scenario)
    assert (found.scenario, found.task_confusion) == (scenario, ())
    assert found.metrics["task_accuracy"] is found.metrics["cross_task_errors"] is None
    assert found.metrics["avg_incremental_acc"] is not None


class Stopper:
    """A watcher that stops a run when it begins to learn a task."""

    def __init__(self, stop: StopRequest, task: int) -> None:
        self.stop, self.task = stop, task

    @hookimpl
    def stage_progress(self, progress: StageProgress) -> None:
        """Stop."""
        if progress.stage == "training" and progress.task == self.task:
            self.stop.ask(Interruption("stopped by the test", 143))


def test_a_resumed_run_keeps_it(tmp_path: Path, record: Record) -> None:
    """Stopped within the third task it has the answers after the second; resumed, all that an uninterrupted one has."""
    stop, registry = StopRequest(), Registry()
    registry.manager.register(Stopper(stop, 2))
    with pytest.raises(Interruption):
        learned(tmp_path, "class", registry=registry, stop=stop, checkpoint_every=0.0)
    begun = find_record(tmp_path, record.run_id)
    assert begun.status == "interrupted"
    assert [len(row) for row in begun.task_confusion] == [5, 5, 0, 0, 0]
    assert begun.metrics["task_accuracy"] is None
    assert without_times(learned(tmp_path, "class")) == without_times(record)


def recorder_of(record: Record) -> RunRecorder:
    return RunRecorder(lambda _: None, record, Registry(), torch.device("cpu"), lambda _: None, lambda _: None)


def test_it_is_in_the_record_before_the_next_evaluation(record: Record) -> None:
    recorder = recorder_of(record.model_copy(update={"task_confusion": ()}))
    recorder.load_state_dict(record.model_dump(mode="json"))
    recorder.update(status="running")
    assert recorder.record.task_confusion == record.task_confusion


def test_checkpoint_of_a_version_that_did_not_count(record: Record) -> None:
    """It goes on; what was not counted is empty until the next evaluation."""
    recorder = recorder_of(record)
    recorder.load_state_dict(record.model_dump(mode="json", exclude={"task_confusion"}))
    recorder.update(status="running")
    assert recorder.record.task_confusion == ((),) * 5
