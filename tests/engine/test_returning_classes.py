"""Whole runs on streams in which a class comes back: one output for it, what is learned, and what can be loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.tiny import registry

import seu_bench
from seu_bench.engine.verification import verify
from seu_bench.errors import RequestError
from seu_bench.results.record_files import find_record

#: Class 1 is in both tasks.
STREAM = """
name = "again"
default_protocol = "quick"
[stream]
kind = "classes"
dataset = "own"
scenario = "class"
order = "fixed"
groups = [[0, 1], [2, 1]]
[datasets.own]
kind = "npz"
path = "data.npz"
"""


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Classes that differ in the place of a bright square."""
    folder = tmp_path_factory.mktemp("again")
    labels = np.arange(180) % 3
    images = np.random.default_rng(0).integers(0, 60, (180, 8, 8)).astype(np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[2 * label : 2 * label + 3, 2:6] += 150
    np.savez(folder / "data.npz", images=images, labels=labels)
    (folder / "again.toml").write_text(STREAM)
    return folder / "again.toml"


#: Strategies that ``make test-long`` tries.
LONG = ("cumulative", "nearest_mean", "lwf", "er_ace", "cwr")


@pytest.mark.parametrize(
    "strategy",
    [
        *("naive", "replay", "icarl", "slda"),
        *(pytest.param(name, marks=pytest.mark.long) for name in LONG),
    ],
)
def test_learns(strategy: str, stream: Path, tmp_path: Path) -> None:
    """Three outputs; the last task is right, and all of it where nothing need be forgotten; the model is the run's."""
    options: dict[str, Any] = {} if strategy in ("slda", "nearest_mean") else {"backbone": "mlp", "epochs": 20}
    record = seu_bench.run(strategy, str(stream), options=options, results=tmp_path)
    assert record.task_labels == ((0, 1), (2, 1)) and record.task_classes == (2, 1)
    assert record.accuracy_matrix[-1][1] == 1
    if strategy not in ("naive", "lwf", "er_ace", "cwr"):
        assert list(record.accuracy_matrix[-1]) == [1, 1] and record.metrics["forgetting"] == 0
        assert record.task_confusion == ((24, 0), (0, 24))
    model = seu_bench.load_model(record.run_id, results=tmp_path)
    assert model(torch.zeros(2, 1, 8, 8)).shape == (2, 3)
    assert verify(registry(), record.run_id, results=tmp_path, benchmark=stream).passed


def test_icarl_learns_a_class_again(stream: Path, tmp_path: Path) -> None:
    """From labels, not from what it said of the class before: here it knew nothing of it. Sizes are as estimated."""
    text = stream.read_text().replace("[[0, 1], [2, 1]]", "[[0], [1, 2], [0, 1]]")
    again = stream.with_name("three.toml")
    again.write_text(text)
    record = seu_bench.run(
        "icarl", str(again), options={"backbone": "mlp", "epochs": 20, "memory": 9}, results=tmp_path
    )
    assert list(record.accuracy_matrix[-1]) == [1, 1, 1]
    assert find_record(tmp_path, record.run_id).memory_by_kind["exemplars"] == 9 * 66


def test_paths_of_their_own_are_refused(stream: Path, tmp_path: Path) -> None:
    """A class that comes back has an output in each of its tasks' paths."""
    with pytest.raises(RequestError, match="a class that comes back has one output"):
        seu_bench.run("independent", str(stream), options={"infer_task": "entropy"}, results=tmp_path)
