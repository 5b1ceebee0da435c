"""Online streams as they are learned: one pass, memories that see each image once, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.tiny import registry
from torch import Tensor

import seu_bench
from seu_bench import Method
from seu_bench.config.benchmark import BenchmarkSpec
from seu_bench.config.run import Request
from seu_bench.data.streams import TaskStream, build_stream
from seu_bench.engine.resolve import resolve
from seu_bench.engine.runner import execute
from seu_bench.engine.stopping import StopRequest
from seu_bench.errors import Interruption, RequestError, ScenarioError
from seu_bench.plugin.methods import CLASSES, PLUGINS
from seu_bench.plugin.registry import Registry, load_plugins, use_plugins
from seu_bench.results.record_metrics import without_times

STREAM = {"kind": "online", "dataset": "digits", "disjoint": 0.4, "blur": 0.2}
BENCHMARK = BenchmarkSpec.of(STREAM, name="once", default_protocol="smoke")


class Counting(Method):
    """Plain training that keeps the labels it sees."""

    name = "counting"

    def setup(self) -> None:
        """Begin without any."""
        self.seen: list[Tensor] = []

    def batch_loss(self, x: Tensor, y: Tensor, task: Tensor, logits: Tensor) -> Tensor:
        """Cross-entropy."""
        self.seen.append(y)
        return super().batch_loss(x, y, task, logits)


def made(strategy: str, found: Registry, **fields: Any) -> tuple[Any, TaskStream]:
    """A strategy for ``online_cifar100``, and its stream of made-up images."""
    named: Any = {"benchmark": "online_cifar100", "protocol": "smoke", "synthetic": True, **fields}
    run = resolve(found, Request(strategy=strategy, **named))
    stream = build_stream(run.spec.benchmark, run.load, run.limits, 0)
    return run.build(run.context(stream.plan)), stream


def test_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method of one's own that overrides nothing of a boundary sees each image once, without saying that it can."""
    monkeypatch.setitem(CLASSES, "counting", Counting)
    learner, stream = made("counting", Registry())
    for place, experience in enumerate(stream.avalanche().train_stream):
        learner.train(experience)
        seen = torch.cat(learner.seen)
        labels = torch.cat([task.train.labels for task in stream.tasks[: place + 1]])
        assert len(seen) == len(labels) and seen.bincount().tolist() == labels.bincount().tolist()


def test_a_record_is_of_the_classes_of_each_segment(tmp_path: Path) -> None:
    """It has no validation images, the accuracy matrix of all segments, and answers by the segment of their class."""
    record = seu_bench.run("naive", BENCHMARK, results=tmp_path, options={"backbone": "mlp"}, device="cpu")
    assert [it[1] for it in record.task_images] == [0] * 5
    assert record.metrics["image_passes"] == sum(it[0] for it in record.task_images)
    assert record.scenario == "class" and [it is None for it in record.accuracy_matrix[4]] == [False] * 5
    assert sorted(label for own in record.task_labels for label in own) == list(range(10))
    assert np.array(record.task_confusion).sum(axis=1).tolist() == [it[2] for it in record.task_images]


@pytest.mark.parametrize("strategy", ["replay", "er_ace", "mir", "derpp"])
def test_a_memory_sees_each_image_once(strategy: str) -> None:
    """A reservoir, batch by batch: the images are never more than asked for, and it has seen as many as came."""
    learner, stream = made(strategy, registry())
    sizes = []
    for experience in stream.avalanche().train_stream[:2]:
        learner.train(experience)
        sizes.append((learner.memory.seen, len(learner.memory)))
    assert sizes == [(64, 64), (128, 128)]


@pytest.mark.parametrize("strategy", ["er_ace", "replay"])
def test_a_run_goes_on_within_the_stream(strategy: str, tmp_path: Path) -> None:
    """Stopped behind the training of its third segment, it ends with the record and the bits of a run in one go."""

    class Watcher:
        stop: StopRequest | None = None
        trained = 0

        @seu_bench.hookimpl
        def stage_progress(self, progress: Any) -> None:
            self.trained += progress.stage == "training" and progress.done
            if self.stop is not None and self.trained == 3:
                self.stop.ask(Interruption("stopped by the test", 143))

    def go(folder: Path, stop: StopRequest | None = None) -> Any:
        manager, watcher = load_plugins(), Watcher()
        watcher.stop = stop
        manager.register(watcher, name="watcher")
        fields: Any = {"benchmark": "online_cifar100", "protocol": "smoke", "synthetic": True, "device": "cpu"}
        options = {"backbone": "mlp", "memory": 20}
        request = Request(strategy=strategy, results=folder, options=options, checkpoint_every=0.0, **fields)
        return execute(Registry(manager), resolve(Registry(manager), request), stop=stop)

    with pytest.raises(Interruption, match="stopped by the test"):
        go(tmp_path / "parts", StopRequest())
    parts, whole = go(tmp_path / "parts"), go(tmp_path / "whole")
    assert without_times(parts.record) == without_times(whole.record)
    assert parts.record.weights_sha256 == whole.record.weights_sha256 is not None


def refused(strategy: str, kind: type[RequestError], **options: Any) -> RequestError:
    """The error of a request for a data set that is not there: nothing was read."""
    request = Request(strategy=strategy, benchmark="online_cifar100", options=options, data_root=Path("/nowhere"))
    with pytest.raises(kind) as caught:
        resolve(registry(), request)
    return caught.value


@pytest.mark.parametrize("strategy", ["ewc", "icarl", "gdumb", "lwf", "agem", "cumulative", "dgr"])
def test_what_needs_boundaries_is_refused(strategy: str) -> None:
    """Before data is read, with the names of those that do without."""
    error = refused(strategy, ScenarioError)
    assert "does something where a task begins or ends" in error.what
    named = str(error.remedy).partition(": ")[2].split(", ")
    assert {"derpp", "er_ace", "joint", "mir", "naive", "replay"} <= {*named} and strategy not in named


def test_further_epochs_are_refused() -> None:
    assert "3 epochs are asked for, and an online stream is seen once" in refused("naive", RequestError, epochs=3).what
    resolve(registry(), Request(strategy="naive", benchmark="online_cifar100", options={"epochs": 1}))


@pytest.mark.parametrize(
    ("own", "learns"),
    [
        ("def penalty(self): return None", True),
        ("def after_task(self, task): pass", False),
        ("online = True\n    def after_task(self, task): pass", True),
        ("def phases(self, task): return super().phases(task)", False),
        ("online = False", False),
    ],
)
def test_a_method_of_a_file(own: str, learns: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what it overrides, or by what it says of itself."""
    monkeypatch.setenv(PLUGINS, "")
    file = tmp_path / "mine.py"
    file.write_text(f'from seu_bench import Method\n\nclass Mine(Method):\n    "Mine."\n    name = "mine"\n    {own}\n')
    found = use_plugins(file)
    request = Request(strategy="mine", benchmark="online_cifar100", plugin=(file,))
    if learns:
        resolve(found, request)
        return
    with pytest.raises(ScenarioError, match="choose one that needs no boundaries"):
        resolve(found, request)
