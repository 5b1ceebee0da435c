"""Progressive networks: learning, forgetting nothing, and states."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import torch
from avalanche.training.plugins import EvaluationPlugin
from support.commands import Command
from support.plugins.pnn import (
    WIDTH,
    Variant,
    both,
    column_size,
    cost,
    stream,
    training,
)
from support.tiny import (
    accuracy_of,
    all_threads,
    build,
    class_stream,
    context,
    learn,
    logits_of,
    one_thread,
    registry,
    same,
    weights,
)

import seu_bench
from seu_bench.errors import RunError
from seu_bench.models.sizes import count_parameters
from seu_bench.training.monitoring.evaluators import AccuracyMatrix
from seu_bench.training.stage import Stage, StageProgress
from seu_bench.training.template import SilentLogger
from seu_bench_kit.blocks import AlexNetShape

setup_module, teardown_module = one_thread, all_threads


# --- learning ---------------------------------------------------------------------------------------------------------


@both
def test_learns(variant: Variant) -> None:
    """Each task is learned well above chance from a plain Avalanche script."""
    source = class_stream([[0, 1], [2, 3]], images=32)
    strategy = learn(source, build(source, "pnn", variant=variant, epochs=6, batch_size=8, width=0.125))
    for task in (0, 1):
        # 24 images of two classes: chance is right 20 times or more once in 1,300.
        assert accuracy_of(strategy.model, source, task) >= 20 / 24


@both
def test_forgets_exactly_nothing(variant: Variant) -> None:
    """Weights and logits of earlier tasks keep their bits; the accuracy matrix's columns are constant."""
    source, matrix = stream(), AccuracyMatrix(3)
    evaluator = EvaluationPlugin(matrix, loggers=[SilentLogger()])
    options = {"width": WIDTH, "variant": variant, "epochs": 3, "batch_size": 8}
    strategy: Any = (
        registry().strategies.find("pnn").factory.build(context(source.plan, "pnn", options, evaluator=evaluator))
    )
    scenario = source.avalanche()
    logits, learned, places = [], [], []
    for task, experience in enumerate(scenario.train_stream):
        strategy.train(experience, eval_streams=[scenario.streams["valid"]])
        strategy.eval(scenario.test_stream[: task + 1])
        logits.append(logits_of(strategy.model, source, task))
        learned.append(weights(strategy.model.column(task)))
        places.append([parameter.data_ptr() for parameter in strategy.model.column(task).parameters()])
        for earlier in range(task + 1):
            assert torch.equal(logits_of(strategy.model, source, earlier), logits[earlier])
            column = strategy.model.column(earlier)
            assert same(weights(column), learned[earlier])
            # Frozen weights are neither copied nor moved, and their gradients take no memory.
            assert [parameter.data_ptr() for parameter in column.parameters()] == places[earlier]
            assert all(parameter.grad is None for parameter in column.parameters())
    rows = matrix.result()
    for task in range(3):
        assert {rows[later][task] for later in range(task, 3)} == {accuracy_of(strategy.model, source, task)}
    assert [tuple(each.shape) for each in logits] == [(24, 2), (36, 3), (24, 2)]


@both
def test_depends_on_the_seed_alone(variant: Variant) -> None:
    """The same seed gives the same bits whatever was drawn before; another seed gives others."""
    found = []
    for seed, noise in ((0, 1), (0, 2), (1, 1)):
        torch.manual_seed(noise)
        strategy = learn(stream(), build(stream(), "pnn", seed=seed, width=WIDTH, variant=variant, epochs=1))
        found.append(weights(strategy.model))
    assert same(found[0], found[1])
    assert not same(found[0], found[2])


def test_a_column_does_not_depend_on_the_ones_before() -> None:
    """A column's first weights hang on the seed and the task, not on how long earlier tasks were learned."""
    found = []
    for epochs in (1, 2):
        strategy = build(stream(), "pnn", width=WIDTH, epochs=epochs)
        learn(stream(), strategy, tasks=1)
        training(strategy, 1)
        found.append(weights(strategy.model.column(1)))
    assert same(found[0], found[1])


def test_one_task() -> None:
    """A stream of one task needs no laterals."""
    source = stream([[0, 1, 2]])
    strategy = learn(source, build(source, "pnn", width=WIDTH))
    assert len(strategy.model.columns) == 1 and len(strategy.model.column(0).laterals) == 0
    assert logits_of(strategy.model, source, 0).shape == (36, 3)


@both
@pytest.mark.long
def test_measured_is_what_was_estimated(command: Command, tmp_path: Path, variant: Variant) -> None:
    """The record's sizes are the cost's; a path has all columns up to the task's but what its logits do not need."""
    options = {"variant": variant, "epochs": 1}
    record = seu_bench.run("pnn", protocol="smoke", limit=8, options=options, results=tmp_path)
    document = cost(
        command,
        *("--benchmark", "split_digits", "--protocol", "smoke", "--limit", 8),
        *("-o", f"variant={variant}", "-o", "epochs=1"),
    )
    assert list(record.params_total) == document["params_total"]
    assert list(record.macs) == document["macs"]
    assert record.metrics["image_passes"] == document["image_passes"]
    assert record.metrics["forgetting"] == 0 and record.metrics["bwt"] == 0
    shape = AlexNetShape.of(1, 8, 8, 0.125)
    d, head = shape.linear, 2 * (shape.linear + 1)

    def head_lateral(task: int) -> int:
        return task + d * (d * task + 1) + head if task else 0

    def unneeded(task: int) -> int:
        """Parts of an earlier column that a later task does not need."""
        if variant == "proper":
            return head + head_lateral(task)
        return column_size(shape, task, 2) - column_size(shape, 0, 2) + head + d * (d + 1)

    expected = []
    for task, total in enumerate(record.params_total):
        own = head_lateral(task) if variant == "compat" else 0
        expected.append(total - own - sum(unneeded(earlier) for earlier in range(task)))
    assert list(record.params_active) == expected


@both
def test_passes_of_a_run(variant: Variant) -> None:
    """The cost's image passes are what the stages pass forward."""
    seen: list[StageProgress] = []
    options = {"variant": variant, "width": WIDTH, "epochs": 2, "batch_size": 16}
    learn(stream(), build(stream(), "pnn", on_progress=seen.append, **options))
    found = {(report.stage, report.task): report.image_passes for report in seen if report.done}
    estimate = registry().strategies.find("pnn").factory.cost(context(stream().plan, "pnn", options))
    assert found == {(s.name, s.task): s.image_passes for s in estimate.stages if s.name != "evaluation"}


def test_tasks_in_another_order() -> None:
    """A task without a column is neither learned out of turn, nor twice; evaluated, it has no right answer."""
    source = stream()
    strategy, scenario = build(source, "pnn", width=WIDTH), source.avalanche()
    with pytest.raises(RunError, match="task 1 cannot follow 0"):
        strategy.train(scenario.train_stream[1])
    strategy.train(scenario.train_stream[0])
    with pytest.raises(RunError, match="task 0 cannot follow 1"):
        strategy.train(scenario.train_stream[0])
    strategy.eval(scenario.test_stream[:2])
    images = next(iter(source.tasks[1].test.batches(8, shuffle=False)))[0]
    with pytest.raises(RunError, match="task 1 has no column yet"):
        strategy.model(images, 1)


# --- states -----------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("task", [0, 1])
def test_resumes_bit_by_bit(variant: Variant, task: int) -> None:
    """A new strategy that loads the state after one epoch ends as the uninterrupted one does."""

    def begun() -> tuple[Any, Stage[None]]:
        strategy = build(stream(), "pnn", width=WIDTH, variant=variant, epochs=3)
        learn(stream(), strategy, tasks=task)
        return strategy, training(strategy, task)

    whole, stage = begun()
    stage.run()
    _, first = begun()
    first.advance()
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second, resumed = begun()
    torch.manual_seed(99)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    resumed.run()
    assert resumed.image_passes == stage.image_passes
    assert same(weights(second.model), weights(whole.model))


@both
def test_state_holds_what_trains(variant: Variant) -> None:
    """Weights, momentum and best weights are those of the new column alone."""
    strategy = build(stream(), "pnn", width=WIDTH, variant=variant)
    learn(stream(), strategy, tasks=2)
    stage = training(strategy, 2)
    stage.advance()
    column = strategy.model.column(2)
    trained = count_parameters(column) - (count_parameters(column.head_lateral) if variant == "compat" else 0)
    state = stage.get_extra_state()
    momenta = [entry["momentum_buffer"] for entry in state["optimizer"]["state"].values()]
    for tensors in (state["weights"].values(), state["best"]["kept"].values(), momenta):
        assert sum(tensor.numel() for tensor in tensors) == trained
