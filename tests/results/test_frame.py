"""Types of the columns of ``load_records``: the same in every folder, and the values of the records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas
import pytest
from support.records import a_record

from seu_bench.results.building import load_records
from seu_bench.results.record import Environment, read_record, record_path, write_record
from seu_bench.results.record_metrics import compute_metrics


def frame_of(results: Path, *fields: dict[str, Any]) -> pandas.DataFrame:
    for number, given in enumerate(fields):
        write_record(results, a_record(f"run-{number}", **given))
    return load_records(results)


COUNTS = (
    "params_total",
    "mask_bits",
    "params_active",
    "macs",
    "memory_bytes",
    "train_flops",
    "image_passes",
    "tuning_passes",
)


@pytest.mark.parametrize(
    "fields",
    [
        [{"metrics": compute_metrics(a_record())}],
        [{"metrics": compute_metrics(a_record(params_total=(3, 5), memory_bytes=(12, 20), macs=(1, 2)))}],
        [{"metrics": dict.fromkeys(COUNTS, 7) | {"acc": 1}}, {"metrics": dict.fromkeys(COUNTS)}],
        [{"metrics": dict.fromkeys(COUNTS, 7.0) | {"acc": 0}}, {"limit": 8, "environment": Environment(threads=2)}],
    ],
    ids=["nothing-measured", "measured", "one-of-two", "floats-of-an-older-record"],
)
def test_types_do_not_depend_on_the_records(tmp_path: Path, fields: list[dict[str, Any]]) -> None:
    """Of what is counted, of what is measured, and where nothing was."""
    complete = [{"metrics": compute_metrics(a_record()) | given.pop("metrics", {}), **given} for given in fields]
    frame = frame_of(tmp_path, *complete)
    assert {str(frame[name].dtype) for name in (*COUNTS, "limit", "first_tasks", "environment.threads")} == {"Int64"}
    assert {str(frame[name].dtype) for name in ("acc", "forgetting", "train_seconds", "seconds")} == {"float64"}


def test_values_are_those_of_the_record(tmp_path: Path) -> None:
    """Beside a run without them, too: a float would round so large a number. A mean is a number of its own."""
    large = 2**60 + 1
    metrics = compute_metrics(a_record(params_total=(large,))) | {"of_a_plugin": 3}
    frame = frame_of(tmp_path, {"metrics": metrics, "params_total": (large,)}, {"metrics": {}, "status": "failed"})
    record = read_record(record_path(tmp_path, "run-0"))
    assert frame["params_total"][0] == record.metrics["params_total"] == record.params_total[-1] == large
    assert isinstance(record.metrics["params_total"], int)
    assert frame["params_total"][1] is pandas.NA
    assert frame["params_total"].mean() == float(large)
    assert str(frame["of_a_plugin"].dtype) == "float64"
    assert frame["params_total_per_task"][0] == (large,)


def test_half_a_parameter(tmp_path: Path) -> None:
    """A stranger's record is read all the same."""
    frame = frame_of(tmp_path, {"metrics": {"params_total": 1.5, "macs": 1e300}}, {"metrics": {"params_total": 2}})
    assert frame["params_total"].tolist() == [1.5, 2.0]
    assert frame["macs"][0] == 1e300


def test_empty(tmp_path: Path) -> None:
    """A folder without records has the columns of one with."""
    (tmp_path / "runs").mkdir()
    frame = load_records(tmp_path)
    assert len(frame) == 0 and str(frame["limit"].dtype) == "Int64"
