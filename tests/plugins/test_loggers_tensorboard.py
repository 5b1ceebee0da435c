"""Event files, read back with TensorBoard's own reader."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.logged import EPOCHS, Log, Witness, due, logged_run
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from seu_bench.errors import Interruption
from seu_bench.results.record_metrics import without_times


def events(folder: Path) -> EventAccumulator:
    """Everything in the files of the only attempt below a folder."""
    (attempt,) = folder.glob("*/*")
    found = EventAccumulator(str(attempt), size_guidance={"scalars": 0, "tensors": 0})
    found.Reload()
    return found


def scalars(found: EventAccumulator) -> Log:
    names = found.Tags()["scalars"]
    return {name: [(event.step, event.value) for event in found.Scalars(name)] for name in names}


def text(found: EventAccumulator, name: str) -> list[str]:
    return [event.tensor_proto.string_val[0].decode() for event in found.Tensors(f"{name}/text_summary")]


def check(found: Log, expected: Log) -> None:
    """Each step once and in order; values as 32-bit numbers, which is what event files have."""
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert [step for step, _ in found[name]] == [step for step, _ in values], name
        assert [value for _, value in found[name]] == pytest.approx([value for _, value in values], rel=1e-6), name


def test_event_files(tiny: Path, tmp_path: Path) -> None:
    """Curves, rows, sizes and metrics; configuration and status as text; an equal record."""
    expected, _ = logged_run(tmp_path / "without")
    record, witness = logged_run(tmp_path / "with", ["tensorboard"])
    assert witness.notices == []
    assert without_times(record) == without_times(expected)
    folder = tmp_path / "with" / "logs" / "tensorboard"
    found = events(folder)
    assert [path.name for path in folder.iterdir()] == [record.run_id]
    check(scalars(found), due(record, witness.curves))
    (table,) = text(found, "run")
    assert f"| options.epochs | {EPOCHS} |" in table
    assert "| strategy | tiny |" in table
    assert text(found, "status") == ["finished"]


def test_run_that_goes_on(tiny: Path, tmp_path: Path) -> None:
    """A second file beside the first, in which nothing is said again, though a checkpoint was lost."""
    stopped = Witness(stop_after=8)
    with pytest.raises(Interruption):
        logged_run(tmp_path, ["tensorboard"], witness=stopped)
    folder = tmp_path / "logs" / "tensorboard"
    assert text(events(folder), "status") == ["interrupted"]
    max(tmp_path.glob("runs/*/checkpoints/*.ckpt")).unlink()
    record, witness = logged_run(tmp_path, ["tensorboard"])
    assert [len(list(attempt.iterdir())) for attempt in folder.glob("*/*")] == [2]
    found = events(folder)
    check(scalars(found), due(record, stopped.curves, witness.curves))
    assert text(found, "status") == ["interrupted", "finished"]
    assert len(text(found, "run")) == 1
