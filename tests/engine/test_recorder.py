"""What the recorder notes of stages and tasks, what it warns of once, and what of it a resumed run keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.shown import a_record

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
from seu_bench.training.stage import EpochReport, Stability, StageProgress

SMALL: dict[str, Any] = {"backbone": "mlp", "width": 0.05}


class Watcher:
    """Keeps what the user is told, and stops a run when it begins to learn a task."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.messages: list[str] = []
        self.stop, self.stop_at = StopRequest(), stop_at

    @hookimpl
    def run_notice(self, message: str) -> None:
        self.messages.append(message)

    @hookimpl
    def stage_progress(self, progress: StageProgress) -> None:
        if progress.stage == "training" and progress.task == self.stop_at:
            self.stop.ask(Interruption("stopped by the test", 143))


def run(
    results: Path, strategy: str, options: dict[str, Any], watcher: Watcher | None = None, **asked: Any
) -> tuple[Record, list[str]]:
    """A run of fractions of a second on a few digits; its record, and what was said."""
    registry, watcher = Registry(), watcher or Watcher()
    registry.manager.register(watcher)
    given: dict[str, Any] = {"protocol": "smoke", "results": results, "device": "cpu", "options": SMALL | options}
    request = Request(strategy=strategy, **(given | asked))
    return execute(registry, resolve(registry, request), stop=watcher.stop).record, watcher.messages


def run_ewc(results: Path, **options: Any) -> tuple[Record, list[str]]:
    return run(results, "ewc", {"epochs": 2, "batch_size": 4, **options}, limit=8)


def learned(
    results: Path, scenario: str, strategy: str = "naive", watcher: Watcher | None = None, **asked: Any
) -> tuple[Record, list[str]]:
    options = {"epochs": 1, "batch_size": 8, "benchmark.stream.scenario": scenario}
    return run(results, strategy, options, watcher, limit=12, **asked)


def recorder_of(record: Record, said: list[str]) -> RunRecorder:
    return RunRecorder(lambda _: None, record, Registry(), torch.device("cpu"), lambda _: None, said.append)


@pytest.fixture(scope="module")
def unstable(tmp_path_factory: pytest.TempPathFactory) -> tuple[Record, list[str]]:
    """A penalty that no step can follow."""
    return run_ewc(tmp_path_factory.mktemp("unstable"), ewc_lambda=1e9, clip_norm=1e-3)


def test_unstable_settings_are_said_once(unstable: tuple[Record, list[str]]) -> None:
    """Before the second task, the first that has a penalty; and no more after that."""
    record, messages = unstable
    assert record.status == "finished"
    (message,) = messages
    assert message.startswith("warning: task 2 is trained with unstable settings: ")
    assert "lower ewc_lambda or learning_rate, or let `seu-bench tune` choose them" in message


def test_the_record_has_stability(unstable: tuple[Record, list[str]]) -> None:
    """Of every training stage with a penalty; stages that train nothing have neither."""
    stages = unstable[0].stages
    found = [stage.stability for stage in stages if stage.name == "training"]
    assert found[0] is None
    assert all(it is not None and it.value > it.bound == 3.8 for it in found[1:])
    others = [stage for stage in stages if stage.name != "training"]
    assert {stage.stability for stage in others} == {None}


def progress(stability: Stability | None) -> StageProgress:
    """The end of a training stage."""
    return StageProgress("training", 0, 1, 1, EpochReport(), 0, 0.0, done=True, stability=stability)


def test_a_resumed_run_does_not_repeat_it(unstable: tuple[Record, list[str]]) -> None:
    """It was said when the run began."""
    said: list[str] = []
    recorder = recorder_of(unstable[0], said)
    recorder.load_state_dict(unstable[0].model_dump(mode="json"))
    recorder.watch(progress(Stability(5.0, 3.8, "strength")))
    assert said == []


def test_the_record_names_the_options_that_were_given(unstable: tuple[Record, list[str]], tmp_path: Path) -> None:
    """Not those that the protocol or tuning chose, and not those that were given as they are by default."""
    names = ("epochs", "batch_size", "width", "backbone", "ewc_lambda")
    assert set(unstable[0].given_options or ()) == {*names, "clip_norm"}
    again, _ = run_ewc(tmp_path, ewc_lambda=1e-6, lr_schedule="cosine")
    assert set(again.given_options or ()) == set(names)


@pytest.mark.parametrize(("share", "told"), [(None, 0), (0.0, 0), (0.8, 0), (1.0, 1)])
def test_rewards_at_chance(share: float | None, told: int) -> None:
    notices: list[str] = []
    recorder = recorder_of(a_record(), notices)
    running = StageProgress("search", 2, 3, 6, EpochReport(0.7, 0.5), 100, 1.0)
    recorder.watch(running)
    assert not notices
    recorder.watch(StageProgress("search", 2, 6, 6, EpochReport(0.7, 0.5), 200, 2.0, done=True, chance_share=share))
    (stage,) = recorder._measure().stages
    assert stage.chance_share == share
    assert len(notices) == told and all("search of task 3" in notice and "at chance" in notice for notice in notices)
    # Resumed, the stage is known and nobody is told again.
    again = recorder_of(a_record(), notices)
    again.load_state_dict(recorder.state_dict())
    assert again._measure().stages == (stage,) and len(notices) == told


# --- answers between tasks


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    return learned(tmp_path_factory.mktemp("class"), "class")[0]


def test_rows_are_the_test_images(record: Record) -> None:
    """Each once; what is right is of its own task."""
    assert [sum(row) for row in record.task_confusion] == [images for *_, images in record.task_images]
    for task, (row, accuracy) in enumerate(zip(record.task_confusion, record.accuracy_matrix[-1], strict=True)):
        assert accuracy is not None and row[task] >= round(accuracy * sum(row))
    told, errors = record.metrics["task_accuracy"], record.metrics["cross_task_errors"]
    assert told == pytest.approx(sum(row[i] / sum(row) for i, row in enumerate(record.task_confusion)) / 5)
    assert errors is not None and 0 <= errors <= 1


def test_a_resumed_run_keeps_it(tmp_path: Path, record: Record) -> None:
    """Stopped within the third task it has the answers after the second; resumed, all that an uninterrupted one has."""
    with pytest.raises(Interruption):
        learned(tmp_path, "class", watcher=Watcher(2), checkpoint_every=0.0)
    begun = find_record(tmp_path, record.run_id)
    assert begun.status == "interrupted"
    assert [len(row) for row in begun.task_confusion] == [5, 5, 0, 0, 0]
    assert begun.metrics["task_accuracy"] is None
    assert without_times(learned(tmp_path, "class")[0]) == without_times(record)
