"""Learning curves: what they measure, that they change nothing, and where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.tiny import accuracy_of, all_threads, build, class_stream, one_thread
from support.tiny import registry as installed

from seu_bench import hookimpl
from seu_bench.config.run import Request
from seu_bench.engine.resolve import resolve
from seu_bench.engine.runner import execute
from seu_bench.engine.stopping import StopRequest
from seu_bench.errors import Interruption
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record
from seu_bench.results.record_files import find_record
from seu_bench.training.monitoring.learning_curve import LearningCurves
from seu_bench.training.stage import StageProgress

setup_module, teardown_module = one_thread, all_threads

BATCHES = 4


def made(
    results: Path,
    strategy: str = "naive",
    *,
    registry: Registry | None = None,
    stop: StopRequest | None = None,
    **fields: Any,
) -> Record:
    options = {"epochs": 3, "batch_size": 16, **fields.pop("options", {})}
    plugins = registry or installed()
    request = Request(
        strategy=strategy, protocol="smoke", limit=40, results=results, device="cpu", options=options, **fields
    )
    return execute(plugins, resolve(plugins, request), stop=stop).record


def test_curves_are_accuracies_after_each_batch() -> None:
    """Before the first batch and after each of the next four, over the end of an epoch, as evaluation finds them."""
    source = class_stream([[0, 1], [2, 3]], images=30)
    curves, expected = LearningCurves(2, BATCHES), []
    strategy = build(source, "naive")
    strategy.plugins.append(curves)
    step = type(strategy).optimizer_step

    def stepped() -> None:
        expected.append(accuracy_of(strategy.model, source, 0))  # before this step
        step(strategy)

    strategy.optimizer_step = stepped
    curves.begin(0, source.tasks[0].test)
    strategy.train(source.avalanche().train_stream[0])
    assert len(expected) > BATCHES
    assert curves.result() == [pytest.approx(expected[: BATCHES + 1]), []]


@pytest.mark.parametrize(
    "strategy", ["naive", *(pytest.param(name, marks=pytest.mark.long) for name in ("ewc", "pnn"))]
)
def test_measuring_changes_nothing(tmp_path: Path, strategy: str) -> None:
    """The same accuracies, passes and operations, in a run of another id; dropout draws what it drew."""
    plain, measured = made(tmp_path, strategy), made(tmp_path, strategy, learning_curve=BATCHES)
    assert plain.run_id != measured.run_id and plain.learning_curve is None and plain.learning_curves == ()
    assert plain.accuracy_matrix == measured.accuracy_matrix
    assert [len(curve) for curve in measured.learning_curves] == [BATCHES + 1] * 5
    for name in ("train_flops", "image_passes", "params_total", "memory_bytes"):
        assert plain.metrics[name] == measured.metrics[name]
    values = [value for curve in measured.learning_curves for value in curve]
    assert measured.metrics["lca"] == pytest.approx(sum(values) / len(values))
    assert plain.metrics["lca"] is None


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("joint", [0] * 5),
        pytest.param("mntdp", [BATCHES + 1, 0, 0, 0, 0], marks=pytest.mark.long),
        pytest.param("ltg", [BATCHES + 1, 0, 0, 0, 0], marks=pytest.mark.long),
    ],
)
def test_no_curve_where_it_was_no_beginning(tmp_path: Path, strategy: str, expected: list[int]) -> None:
    """A prior and a search have seen the task's images already, and joint learns all tasks at once."""
    record = made(tmp_path, strategy, learning_curve=BATCHES)
    assert [len(curve) for curve in record.learning_curves] == expected
    assert record.metrics["lca"] is None


def test_fewer_batches_than_were_asked_for(tmp_path: Path) -> None:
    """The record has as many as there were, and no area."""
    record = made(tmp_path, learning_curve=1000)
    assert 1 < len(record.learning_curves[0]) < 1001 and record.metrics["lca"] is None


class Stopper:
    """A watcher that stops a run after an epoch of a task."""

    def __init__(self, stop: StopRequest, task: int, epoch: int) -> None:
        self.stop, self.at = stop, (task, epoch)

    @hookimpl
    def stage_progress(self, progress: StageProgress) -> None:
        """Stop."""
        if (progress.task, progress.epoch) == self.at and progress.stage == "training":
            self.stop.ask(Interruption("stopped by the test", 143))


@pytest.mark.long
def test_resumed_curves_are_the_same(tmp_path: Path) -> None:
    """Interrupted in the middle of a task whose curve is not whole yet: an epoch has two batches."""
    fields: dict[str, Any] = {"learning_curve": 5, "options": {"epochs": 4, "batch_size": 20}}
    whole = made(tmp_path / "whole", **fields)
    stop, watched = StopRequest(), Registry()
    watched.manager.register(Stopper(stop, 1, 1))
    with pytest.raises(Interruption):
        made(tmp_path / "part", registry=watched, stop=stop, checkpoint_every=0.0, **fields)
    begun = find_record(tmp_path / "part", whole.run_id)
    assert [len(curve) for curve in begun.learning_curves] == [6, 5, 0, 0, 0]
    resumed = made(tmp_path / "part", **fields)
    assert resumed.learning_curves == whole.learning_curves and resumed.metrics["lca"] == whole.metrics["lca"]
    assert [len(curve) for curve in whole.learning_curves] == [6] * 5
