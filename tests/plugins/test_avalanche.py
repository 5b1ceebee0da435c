"""Avalanche's strategies by name: its algorithms on our path, counted, with a head per task."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from avalanche.training import plugins as stock
from support.commands import Command
from support.tiny import (
    accuracy_of,
    all_threads,
    class_stream,
    context,
    learn,
    one_thread,
    registry,
)
from torch import nn

from seu_bench.config.protocol import Schedule
from seu_bench.data.avalanche import MixedLoader, TaskDataset
from seu_bench.data.streams import TaskStream
from seu_bench.errors import RequestError
from seu_bench.models.backbone import BackboneModel
from seu_bench.training.monitoring.evaluators import AccuracyMatrix
from seu_bench.training.stage import StageProgress
from seu_bench.training.template import SilentLogger
from seu_bench_avalanche.catalogue import METHODS, UNAVAILABLE
from seu_bench_avalanche.corrected import EvaluatingMir
from seu_bench_avalanche.strategy import AvalancheStrategy

setup_module, teardown_module = one_thread, all_threads

SMALL: dict[str, Any] = {"backbone": "mlp", "width": 0.05, "epochs": 2, "batch_size": 8}
#: A memory that is full after the first task, so that estimates are exact.
FULL: dict[str, dict[str, Any]] = {
    "gem": {"patterns_per_experience": 5},
    "agem": {"patterns_per_experience": 8, "sample_size": 8},
    "replay": {"mem_size": 16},
    "gdumb": {"mem_size": 12},
    "mir": {"mem_size": 16, "subsample": 16, "batch_size_mem": 4},
    "er_ace": {"mem_size": 16, "batch_size_mem": 4},
}


def stream(**more: Any) -> TaskStream:
    return class_stream([[0, 1], [2, 3], [4, 5]], **({"images": 16} | more))


def build(name: str, source: TaskStream, **options: Any) -> Any:
    stages: list[StageProgress] = []
    made = context(source.plan, name, SMALL | options, on_progress=stages.append)
    strategy: Any = registry().strategies.find(name).factory.build(made)
    strategy.seen = stages
    return strategy


def train(strategy: Any, source: TaskStream) -> Any:
    """As the runner does it: task by task, or the whole stream at once."""
    if strategy.whole_stream:
        strategy.train(source.avalanche().train_stream, eval_streams=[])
        return strategy
    return learn(source, strategy)


def passes(strategy: Any) -> dict[tuple[str, int], int]:
    """Image passes of each stage."""
    return {(stage.stage, stage.task): stage.image_passes for stage in strategy.seen if stage.done}


@pytest.mark.parametrize("name", METHODS)
def test_image_passes_are_as_estimated(name: str) -> None:
    """Every pass through the backbone counts, those of teachers, memories and importances too."""
    source, more = stream(), FULL.get(name, {})
    strategy = train(build(name, source, **more), source)
    factory = registry().strategies.find(name).factory
    cost = factory.cost(context(source.plan, name, SMALL | more))
    estimated = {(stage.name, stage.task): stage.image_passes for stage in cost.stages if stage.name != "evaluation"}
    measured = {key: count for key, count in passes(strategy).items() if count or key in estimated}
    assert measured == estimated
    assert set(cost.params_total) == {sum(parameter.numel() for parameter in strategy.model.parameters())}


@pytest.mark.parametrize("name", ["replay", "er_ace", "mir", "gdumb"])
def test_memory_has_every_task(name: str) -> None:
    """Replayed images come from all tasks, within the memory's size."""
    source = stream()
    strategy = train(build(name, source, mem_size=12), source)
    owner = strategy if name == "er_ace" else strategy.methods[0]
    buffer = owner.storage_policy.buffer
    assert len(buffer) <= 12
    assert set(buffer.targets_task_labels) == {0, 1, 2}


def test_gdumb_trains_every_tasks_head() -> None:
    """It learns from its memory alone, each image under the head of its own task, and so answers for all of them."""
    source = class_stream([[0, 1], [2, 3, 4], [5, 6]], images=32)
    strategy = train(build("gdumb", source, mem_size=120, epochs=10), source)
    for task in range(3):
        assert accuracy_of(strategy.model, source, task) > 0.8


def test_mir_replays_where_labels_repeat() -> None:
    """With classes numbered from 0 in each task Avalanche's own MIR has nothing left to replay; ours has."""
    source = class_stream([[0, 1], [2, 3]], images=32)
    found = {}
    for kind in (stock.MIRPlugin, EvaluatingMir):
        model = BackboneModel(nn.Sequential(nn.Flatten(), nn.Linear(64, 4)), 4, (2, 2))
        plugin = kind(batch_size_mem=4, mem_size=16, subsample=8)
        schedule = Schedule(epochs=1, batch_size=24)
        strategy = AvalancheStrategy(model=model, methods=[plugin], schedule=schedule)
        strategy.train(source.avalanche().train_stream[0], eval_streams=[])
        found[kind] = plugin.replay_loader is not None
    assert found == {stock.MIRPlugin: False, EvaluatingMir: True}


def test_joint_fills_the_last_row() -> None:
    """Trained once on everything: what follows the last task is measured, and nothing before it."""
    source = stream(images=24)
    matrix = AccuracyMatrix(3)
    made = context(source.plan, "joint", SMALL | {"epochs": 8}, evaluator=_evaluator(matrix))
    strategy: Any = registry().strategies.find("joint").factory.build(made)
    scenario = source.avalanche()
    strategy.train(scenario.train_stream, eval_streams=[])
    strategy.eval(scenario.test_stream)
    rows = matrix.result()
    assert rows[:2] == [[None] * 3] * 2
    assert rows[2] == [accuracy_of(strategy.model, source, task) for task in range(3)]
    assert min(value for value in rows[2] if value is not None) > 0.6


def _evaluator(matrix: AccuracyMatrix) -> Any:
    return stock.EvaluationPlugin(matrix, loggers=[SilentLogger()])


def test_joint_sees_all_tasks_in_each_epoch() -> None:
    """Batches mix tasks, every image once per epoch; a single image left over joins the batch before it."""
    source = stream()
    scenario = source.avalanche()
    dataset: Any = scenario.train_stream[0].dataset
    for experience in scenario.train_stream[1:]:
        dataset = dataset.concat(experience.dataset)
    assert isinstance(dataset, TaskDataset) and not dataset.is_one_task
    count = len(dataset)
    for size in (5, 8, count - 1, count, count + 1):
        loader = MixedLoader(dataset, size)
        batches = list(loader)
        assert len(batches) == len(loader)
        assert sum(len(batch[1]) for batch in batches) == count
        assert min(len(batch[1]) for batch in batches) > 1
    first: Any = next(iter(MixedLoader(dataset, count)))
    assert sorted(first[2].tolist()) == sorted(t for task in source.tasks for t in [task.train.task] * len(task.train))


def test_agem_needs_an_image_of_each_task() -> None:
    """A sample that is smaller than the number of earlier tasks is refused."""
    with pytest.raises(RequestError, match="sample of 1 images"):
        build("agem", stream(), sample_size=1)


@pytest.mark.parametrize("name", ["replay", "er_ace", "mir", "gdumb"])
def test_no_warnings_of_avalanche_about_itself(name: str) -> None:
    """Whoever runs a benchmark hears of no deprecation inside of Avalanche."""
    source = stream()
    strategy = build(name, source)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(strategy, source)
    assert [str(warning.message) for warning in caught] == []


def test_missing_ones_say_why(command: Command) -> None:
    """Names not offered are in no table of those that are, and asking for one tells the reason."""
    assert not set(METHODS) & set(UNAVAILABLE)
    for name, missing in UNAVAILABLE.items():
        assert "avalanche-lib 0.6.0" in missing.reason
        assert name in registry().strategies.unavailable
    answer = command("cost", "--strategy", "lamaml")
    assert answer.status == 2
    assert "needs the package 'higher'" in answer.err


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: stock.BiCPlugin(mem_size=20), "single head"),
        (lambda: stock.GSS_greedyPlugin(mem_size=20, input_size=[1, 8, 8]), "task_labels"),
        (lambda: stock.LFLPlugin(0.1), "get_features"),
    ],
    ids=["bic", "gss_greedy", "lfl"],
)
def test_reasons_still_hold(make: Any, said: str) -> None:
    """Those that cannot be used fail as the table says; one that learns here should be offered."""
    source = class_stream([[0, 1], [2, 3]], images=16)
    model = BackboneModel(nn.Sequential(nn.Flatten(), nn.Linear(64, 4)), 4, (2, 2))
    strategy = AvalancheStrategy(model=model, methods=[make()], schedule=Schedule(epochs=1, batch_size=8))
    with pytest.raises((AssertionError, TypeError, NotImplementedError), match=said):
        train(strategy, source)
