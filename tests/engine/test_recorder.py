"""What the recorder notes of stages: the share of clipped steps, and unstable settings, of which it warns once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from seu_bench import hookimpl
from seu_bench.config.run import Request
from seu_bench.engine.recorder import RunRecorder
from seu_bench.engine.resolve import resolve
from seu_bench.engine.runner import execute
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record
from seu_bench.results.record_parts import StabilityRecord
from seu_bench.training.monitoring.stability import Stability
from seu_bench.training.stage import EpochReport, StageProgress


class Notices:
    """A watcher that keeps what the user is told."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    @hookimpl
    def run_notice(self, message: str) -> None:
        """Keep."""
        self.messages.append(message)


def run_ewc(results: Path, **options: Any) -> tuple[Record, list[str]]:
    """A run of EWC on a small perceptron; its record, and what was said."""
    registry, notices = Registry(), Notices()
    registry.manager.register(notices)
    small = {"backbone": "mlp", "width": 0.05, "epochs": 2, "batch_size": 4}
    asked: dict[str, Any] = {"strategy": "ewc", "protocol": "smoke", "limit": 8, "results": results, "device": "cpu"}
    record = execute(registry, resolve(registry, Request(options=small | options, **asked))).record
    return record, notices.messages


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


def test_the_record_has_stability_and_clipped_steps(unstable: tuple[Record, list[str]]) -> None:
    """Of every training stage with a penalty; stages that train nothing have neither."""
    stages = unstable[0].stages
    found = [stage.stability for stage in stages if stage.name == "training"]
    assert found[0] is None
    assert all(it is not None and it.value > it.bound == 3.8 for it in found[1:])
    assert {stage.clipped_share for stage in stages if stage.name == "training"} == {1.0}
    others = [stage for stage in stages if stage.name != "training"]
    assert {(stage.clipped_share, stage.stability) for stage in others} == {(None, None)}


def test_stable_settings_are_recorded_without_a_word(tmp_path: Path) -> None:
    """The value is there for whoever wants to know how far it is from the bound."""
    record, messages = run_ewc(tmp_path, ewc_lambda=1e-6)
    assert messages == []
    found = [stage.stability for stage in record.stages if stage.name == "training"]
    assert all(it is not None and it.value < it.bound for it in found[1:])


def progress(stability: Stability | None) -> StageProgress:
    """The end of a training stage."""
    return StageProgress("training", 0, 1, 1, EpochReport(), 0, 0.0, done=True, stability=stability)


@pytest.fixture
def recorder_of() -> Callable[[Record, list[str]], RunRecorder]:
    """Recorders that speak to a list."""

    def make(record: Record, said: list[str]) -> RunRecorder:
        return RunRecorder(lambda _: None, record, Registry(), torch.device("cpu"), lambda _: None, said.append)

    return make


def test_a_resumed_run_does_not_repeat_it(
    unstable: tuple[Record, list[str]], recorder_of: Callable[[Record, list[str]], RunRecorder]
) -> None:
    """It was said when the run began."""
    said: list[str] = []
    recorder = recorder_of(unstable[0], said)
    recorder.load_state_dict(unstable[0].model_dump(mode="json"))
    recorder.watch(progress(Stability(5.0, 3.8, "strength")))
    assert said == []


def test_checkpoint_of_a_version_that_counted_no_memory(
    unstable: tuple[Record, list[str]], recorder_of: Callable[[Record, list[str]], RunRecorder]
) -> None:
    """What it had not measured is not measured, and stays beside its task."""
    record = unstable[0]
    state = record.model_dump(mode="json", exclude={"memory_bytes", "memory_by_kind"})
    recorder = recorder_of(record, [])
    recorder.load_state_dict(state)
    assert recorder.sizes.memory_bytes == [None] * len(record.params_total)
    recorder.load_state_dict(record.model_dump(mode="json"))
    assert tuple(recorder.sizes.memory_bytes) == record.memory_bytes
    assert recorder.sizes.memory_by_kind == record.memory_by_kind
    assert sum(record.memory_by_kind.values()) == record.memory_bytes[-1] == record.metrics["memory_bytes"]


def test_a_penalty_that_is_no_number(
    unstable: tuple[Record, list[str]], recorder_of: Callable[[Record, list[str]], RunRecorder]
) -> None:
    """It is warned of, and leaves the record readable."""
    said: list[str] = []
    recorder = recorder_of(unstable[0], said)
    for value in (1.0, float("inf")):
        recorder.watch(progress(Stability(value, 3.8, "strength")))
    recorder.update()
    assert [stage.stability for stage in recorder.record.stages] == [StabilityRecord(value=1.0, bound=3.8), None]
    assert len(said) == 1


def test_the_record_names_the_options_that_were_given(unstable: tuple[Record, list[str]], tmp_path: Path) -> None:
    """Not those that the protocol or tuning chose, and not those that were given as they are by default."""
    names = ("epochs", "batch_size", "width", "backbone", "ewc_lambda")
    assert set(unstable[0].given_options or ()) == {*names, "clip_norm"}
    again, _ = run_ewc(tmp_path, ewc_lambda=1e-6, lr_schedule="cosine")
    assert set(again.given_options or ()) == set(names)
