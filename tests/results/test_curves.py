"""Measurements of each epoch come into the record."""

from __future__ import annotations

from pathlib import Path

from support.commands import Command, folder_of_run

from seu_bench.results.record import read_record


def test_of_a_run(command: Command, tmp_path: Path) -> None:
    """Every epoch of every training; an evaluation has none."""
    folder = folder_of_run(command, "--strategy", "naive", "--protocol", "smoke", "--results", tmp_path)
    record = read_record(folder)
    training = [stage for stage in record.stages if stage.name == "training"]
    assert len(training) == 5
    for stage in training:
        assert len(stage.losses) == len(stage.accuracies) == stage.epochs > 0
        assert all(loss is not None and loss > 0 for loss in stage.losses)
        assert all(accuracy is not None and 0 <= accuracy <= 1 for accuracy in stage.accuracies)
    assert {stage.losses for stage in record.stages if stage.name == "evaluation"} == {()}
