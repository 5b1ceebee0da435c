"""Accuracy over images and by class, where tasks and classes have different numbers of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch

from seu_bench import hookimpl
from seu_bench.config.run import Request
from seu_bench.data.streams import build_stream
from seu_bench.engine.resolve import resolve
from seu_bench.engine.runner import execute
from seu_bench.engine.saved_model import load_model
from seu_bench.engine.stopping import StopRequest
from seu_bench.engine.verification import request_of, verify
from seu_bench.errors import Interruption
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record, write_record
from seu_bench.results.record_files import find_record
from seu_bench.results.record_metrics import compute_metrics, without_times
from seu_bench.training.stage import StageProgress

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
    def learned(
        results: Path = tmp_path, scenario: str = "class", stop: StopRequest | None = None, **asked: Any
    ) -> Record:
        registry = Registry()
        if stop is not None:
            registry.manager.register(Stopper(stop))
        options = {"backbone": "linear", "epochs": 3, "benchmark.stream.scenario": scenario}
        given = {"benchmark": str(benchmark), "results": results, "device": "cpu", "options": options} | asked
        return execute(registry, resolve(registry, Request(strategy="naive", **given)), stop=stop).record

    return learned


class Stopper:
    """A watcher that stops a run when it begins to learn the second task."""

    def __init__(self, stop: StopRequest) -> None:
        self.stop = stop

    @hookimpl
    def stage_progress(self, progress: StageProgress) -> None:
        """Stop."""
        if progress.stage == "training" and progress.task == 1:
            self.stop.ask(Interruption("stopped by the test", 143))


@pytest.mark.parametrize("scenario", ["task", "class"])
def test_counts_are_those_of_the_model(learn: Learn, benchmark: Path, tmp_path: Path, scenario: str) -> None:
    """Counted anew from the saved model, image by image, by the data set's own numbers of the classes."""
    record = learn(scenario=scenario)
    assert record.task_class_names == (("2", "0", "1"), ("4", "3"))
    run = resolve(Registry(), request_of(record, benchmark))
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


def test_a_resumed_run_keeps_them(learn: Learn, tmp_path: Path) -> None:
    """Stopped after the first task it has that one's; resumed, all that an uninterrupted run has."""
    stop = StopRequest()
    with pytest.raises(Interruption):
        learn(tmp_path / "resumed", stop=stop, checkpoint_every=0.0)
    begun = find_record(tmp_path / "resumed", "unequal")
    assert [len(counts) for counts in begun.task_class_counts] == [3, 0]
    assert begun.metrics["balanced_acc"] is begun.metrics["image_acc"] is None
    assert without_times(learn(tmp_path / "resumed")) == without_times(learn(tmp_path / "whole"))


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
