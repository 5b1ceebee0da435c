"""Measurements of each epoch stay with their stage, through interruptions, and come into the record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from support.commands import Command, folder_of_run

from seu_bench.results.record import read_record
from seu_bench.training.stage import EpochReport, Stage, StageProgress


class Falling(Stage[None]):
    """A loss of one over the number of the epoch; the accuracy is measured in every second epoch."""

    def __init__(self, epochs: int = 5) -> None:
        super().__init__("training", 0, epochs, 3, torch.device("cpu"))

    def run_epoch(self) -> EpochReport:
        return EpochReport(1 / (self.epoch + 1), 0.5 if self.epoch % 2 else None)

    def result(self) -> None:
        pass

    def get_extra_state(self) -> dict[str, Any]:
        return {}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        pass


WHOLE = tuple(EpochReport(1 / epoch, None if epoch % 2 else 0.5) for epoch in range(1, 6))


def last_told(stage: Stage[None]) -> StageProgress:
    told: list[StageProgress] = []
    stage.run(told.append)
    assert [progress.curve for progress in told[:-1]] == [()] * (len(told) - 1)
    return told[-1]


@pytest.mark.parametrize("epoch", [1, 3, 5])
def test_an_interrupted_stage_keeps_it(epoch: int) -> None:
    """Its state after any epoch goes through a file of tensors and plain values, and the whole curve comes of it."""
    states: list[dict[str, Any]] = []
    Falling().run(pause=lambda stage: states.append(json.loads(json.dumps(stage.state_dict() | {"randomness": None}))))
    stage = Falling()
    stage.load_state_dict(states[epoch - 1] | {"randomness": stage.randomness.state_dict()})
    assert last_told(stage).curve == WHOLE


def test_of_a_run(command: Command, tmp_path: Path) -> None:
    """Every epoch of every training; an evaluation has none. Older records, without, are read as before."""
    folder = folder_of_run(command, "--strategy", "naive", "--protocol", "smoke", "--results", tmp_path)
    record = read_record(folder)
    training = [stage for stage in record.stages if stage.name == "training"]
    assert len(training) == 5
    for stage in training:
        assert len(stage.losses) == len(stage.accuracies) == stage.epochs > 0
        assert all(loss is not None and loss > 0 for loss in stage.losses)
        assert all(accuracy is not None and 0 <= accuracy <= 1 for accuracy in stage.accuracies)
    assert {stage.losses for stage in record.stages if stage.name == "evaluation"} == {()}
    document = json.loads((folder / "record.json").read_text())
    for stage in document["stages"]:
        del stage["losses"], stage["accuracies"]
    (folder / "record.json").write_text(json.dumps(document))
    older = read_record(folder)
    assert {(stage.losses, stage.accuracies) for stage in older.stages} == {((), ())}
    assert older.metrics == record.metrics
