"""Scenarios: accuracy over images and by class, classes that come back, and strategies that need task labels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
from support.tiny import registry

import seu_bench
from seu_bench.config.run import Request
from seu_bench.data.streams import build_stream
from seu_bench.engine.resolve import resolve
from seu_bench.engine.saved_model import load_model
from seu_bench.engine.verification import request_of, verify
from seu_bench.errors import RequestError
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record, write_record
from seu_bench.results.record_files import find_record
from seu_bench.results.record_metrics import compute_metrics

#: Training and test images of each of five classes; class 3 has one test image.
TRAIN, TEST = (40, 40, 40, 8, 40), (24, 12, 12, 1, 6)
#: Tasks of three classes and of two, which are not in the order of their numbers.
BENCHMARK = """
name = "unequal"
default_protocol = "quick"
[stream]
kind = "classes"
dataset = "own"
order = "fixed"
groups = [[2, 0, 1], [4, 3]]
input = { normalise = "data_set" }
[datasets.own]
kind = "npz"
path = "data.npz"
"""
Learn: TypeAlias = Callable[..., Record]


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A benchmark of images that are noise and a bright row for their class."""
    folder, draws = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for split, counts in (("train", TRAIN), ("test", TEST)):
        labels = np.repeat(np.arange(5), counts)
        images = draws.integers(0, 150, (len(labels), 8, 8), dtype=np.uint8)
        images[np.arange(len(labels)), labels] += 60
        arrays |= {f"x_{split}": images, f"y_{split}": labels}
    np.savez(folder / "data.npz", **arrays)
    (folder / "unequal.toml").write_text(BENCHMARK)
    return folder / "unequal.toml"


@pytest.fixture
def learn(benchmark: Path, tmp_path: Path) -> Learn:
    def learned(scenario: str = "class") -> Record:
        options = {"backbone": "linear", "epochs": 3, "benchmark.stream.scenario": scenario}
        return seu_bench.run("naive", str(benchmark), results=tmp_path, device="cpu", options=options)

    return learned


@pytest.mark.parametrize("scenario", ["task", "class"])
def test_counts_are_those_of_the_model(learn: Learn, benchmark: Path, tmp_path: Path, scenario: str) -> None:
    """Counted anew from the saved model, image by image, by the data set's own numbers of the classes."""
    record = learn(scenario=scenario)
    assert record.task_class_names == (("2", "0", "1"), ("4", "3"))
    run = resolve(registry(), request_of(record, benchmark))
    stream = build_stream(run.spec.benchmark, run.load, run.limits, run.spec.seed)
    model, right, all_right = load_model(record.run_id, tmp_path), {}, 0
    for task, splits in enumerate(stream.tasks):
        images, labels = splits.test.gather(torch.arange(len(splits.test)))
        answers = model(images, task if scenario == "task" else None).argmax(dim=1)
        first = 3 if scenario == "class" and task == 1 else 0
        for place, name in enumerate(record.task_class_names[task]):
            right[name] = int(((labels == first + place) & (answers == labels)).sum())
        all_right += int((answers == labels).sum())
    counted = {
        name: count
        for names, counts in zip(record.task_class_names, record.task_class_counts, strict=True)
        for name, count in zip(names, counts, strict=True)
    }
    assert counted == {str(label): (right[str(label)], TEST[label]) for label in range(5)}
    assert record.metrics["image_acc"] == pytest.approx(all_right / sum(TEST))
    assert record.metrics["balanced_acc"] == pytest.approx(np.mean([right[str(c)] / TEST[c] for c in range(5)]))
    assert record.metrics["acc"] != pytest.approx(record.metrics["image_acc"])


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
LONG = ("cumulative", "nearest_mean", "lwf", "er_ace", "cwr", "wa", "bic", "lucir")


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


def test_paths_of_their_own_are_refused(stream: Path, tmp_path: Path) -> None:
    """A class that comes back has an output in each of its tasks' paths."""
    with pytest.raises(RequestError, match="a class that comes back has one output"):
        seu_bench.run("independent", str(stream), options={"infer_task": "entropy"}, results=tmp_path)


@pytest.mark.parametrize("strategy", ["seu", "pnn", "hat", "independent"])
@pytest.mark.parametrize("scenario", ["class", "domain"])
def test_a_strategy_that_needs_task_labels_is_refused_without(strategy: str, scenario: str) -> None:
    """The error names the strategies that can, and the option by which this one can."""

    def asked(**options: Any) -> Request:
        given = {"benchmark.stream.scenario": scenario, **options}
        return Request(strategy=strategy, benchmark="split_digits", options=given)

    with pytest.raises(RequestError, match=f"cannot learn the scenario '{scenario}': it learns 'task'") as error:
        resolve(registry(), asked())
    assert "infer_task=entropy" in str(error.value.remedy) and "er_ace" in str(error.value.remedy)
    assert strategy not in str(error.value.remedy).rpartition(": ")[2].split(", ")
    assert resolve(registry(), asked(infer_task="energy")).spec.run_id.startswith(f"split_digits-{scenario}-")


def test_verify_counts_anew(learn: Learn, benchmark: Path, tmp_path: Path) -> None:
    """An answer moved from one class to another leaves every accuracy of a task as it was, and is found."""
    record = learn()

    def found() -> dict[str, bool | None]:
        made = verify(Registry(), record.run_id, results=tmp_path, device="cpu", benchmark=benchmark)
        return {check.name: check.passed for check in made.checks}

    assert all(found().values())
    ((right, images), *others), last = record.task_class_counts
    moved = record.model_copy(update={"task_class_counts": (((right - 1, images - 1), *others), last)})
    moved = moved.model_copy(
        update={"metrics": record.metrics | {"balanced_acc": compute_metrics(moved)["balanced_acc"]}}
    )
    write_record(tmp_path, moved)
    assert [name for name, passed in found().items() if passed is False] == ["record", "accuracy"]


@pytest.mark.parametrize(
    "strategy", ["icarl", *(pytest.param(name, marks=pytest.mark.long) for name in ("wa", "bic", "lucir"))]
)
def test_a_class_is_learned_again(strategy: str, stream: Path, tmp_path: Path) -> None:
    """From labels, not from what it said of the class before: here it knew nothing of it. Sizes are as estimated."""
    text = stream.read_text().replace("[[0, 1], [2, 1]]", "[[0], [1, 2], [0, 1]]")
    again = stream.with_name("three.toml")
    again.write_text(text)
    record = seu_bench.run(
        strategy, str(again), options={"backbone": "mlp", "epochs": 20, "memory": 9}, results=tmp_path
    )
    assert list(record.accuracy_matrix[-1]) == [1, 1, 1]
    assert find_record(tmp_path, record.run_id).memory_by_kind["exemplars"] == 9 * 66
