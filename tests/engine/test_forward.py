"""Forward transfer: what one head makes of a task before it learns it, and before anything is learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import seu_bench
from seu_bench import hookimpl
from seu_bench.config.run import Request
from seu_bench.data.streams import build_stream
from seu_bench.engine.resolve import resolve
from seu_bench.engine.runner import execute
from seu_bench.engine.stopping import StopRequest
from seu_bench.errors import Interruption
from seu_bench.plugin.registry import Registry, load_plugins
from seu_bench.results.record import Record
from seu_bench.results.record_metrics import without_times
from seu_bench.training.rehearsal import evaluation_passes
from seu_bench.training.stage import StageProgress

DOMAIN: dict[str, Any] = {"benchmark.stream.scenario": "domain", "epochs": 2, "learning_rate": 0.05}
ASKED: dict[str, Any] = {"benchmark": "split_digits", "protocol": "smoke", "first_tasks": 3, "device": "cpu"}


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """A run of three tasks that share a head."""
    return seu_bench.run("naive", **ASKED, options=DOMAIN, results=tmp_path_factory.mktemp("results"))


def test_the_numbers(record: Record) -> None:
    """Against the same strategy trained step by step, whose answers are counted here; nothing else is another one."""
    run = resolve(Registry(), Request(strategy="naive", **ASKED, options=DOMAIN))
    stream = build_stream(run.spec.benchmark, run.load, run.limits, run.spec.seed, **run.part)
    strategy, scenario = run.build(run.context(stream.plan)), stream.avalanche()

    def accuracy(task: int) -> float:
        images = stream.tasks[task].test
        x, y = images.gather(torch.arange(len(images)))
        with torch.no_grad():
            answers = strategy.model.eval()(x, 0).argmax(dim=1)
        return sum(int(a) == int(b) for a, b in zip(answers, y, strict=True)) / len(y)

    untrained, rows = [accuracy(task) for task in range(3)], list[list[float]]()
    for task, experience in enumerate(scenario.train_stream):
        strategy.train(experience, eval_streams=[scenario.streams["valid"][task : task + 1]])
        rows.append([accuracy(each) for each in range(3)])
    assert record.accuracy_matrix == tuple((*row[: task + 1], *[None] * (2 - task)) for task, row in enumerate(rows))
    forward = [(None, None), (rows[0][1], untrained[1]), (rows[1][2], untrained[2])]
    assert record.forward_accuracies == tuple(forward)
    gains = [rows[0][1] - untrained[1], rows[1][2] - untrained[2]]
    assert record.metrics["fwt"] == pytest.approx(sum(gains) / 2) != 0
    passes = [stage.image_passes for stage in record.stages if stage.name == "evaluation"]
    assert passes == [stage.image_passes for stage in evaluation_passes(stream.plan)]
    tests = [images for *_, images in record.task_images]
    assert passes == [tests[0], tests[0] + 3 * tests[1], sum(tests) + 2 * tests[2]]


def test_none_where_tasks_share_no_head(tmp_path: Path) -> None:
    """With task labels, where the head of a task is chosen, and with classes of tasks to come."""
    for strategy, scenario, more in (
        ("naive", "task", {}),
        ("naive", "class", {}),
        ("independent", "domain", {"infer_task": "entropy"}),
        ("joint", "domain", {}),
    ):
        options = {"benchmark.stream.scenario": scenario, "epochs": 1, **more}
        found = seu_bench.run(strategy, **ASKED, options=options, results=tmp_path)
        assert (found.forward_accuracies, found.metrics["fwt"]) == ((), None), (strategy, scenario)


def test_a_method_that_cannot_answer_untrained(tmp_path: Path) -> None:
    """It has no number, and its run goes on."""
    found = seu_bench.run("nearest_mean", **ASKED, options={"benchmark.stream.scenario": "domain"}, results=tmp_path)
    assert found.status == "finished" and len(found.forward_accuracies) == 3
    assert all(ahead is not None for ahead, _ in found.forward_accuracies[1:])


class Stop:
    """Stops after so many epochs."""

    def __init__(self, stop: StopRequest, after: int) -> None:
        self.stop, self.after = stop, after

    @hookimpl
    def stage_progress(self, progress: StageProgress) -> None:
        """Count."""
        self.after -= progress.stage == "training" and progress.epoch > 0
        if not self.after:
            self.stop.ask(Interruption("stopped by the test", 143))


@pytest.mark.parametrize("after", [1, 3])
def test_a_run_that_is_stopped_within_a_task(record: Record, tmp_path: Path, after: int) -> None:
    """Has measured before it: its record is that of the whole one."""
    stop, manager = StopRequest(), load_plugins()
    manager.register(Stop(stop, after), name="stop")
    request = Request(strategy="naive", **ASKED, options=DOMAIN, results=tmp_path, checkpoint_every=0.0)
    with pytest.raises(Interruption):
        execute((registry := Registry(manager)), resolve(registry, request), stop=stop)
    again = execute(Registry(), resolve(Registry(), request)).record
    assert without_times(again) == without_times(record)
