"""Progressive networks: sizes to the unit, outputs by the formula, and nothing of an earlier task ever changes."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pytest
import torch
from avalanche.core import SupervisedPlugin
from avalanche.training.plugins import EvaluationPlugin
from support.commands import Command
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
from torch import Tensor, nn
from torch.nn import functional

import seu_bench
from seu_bench.data.planning import StreamPlan, TaskPlan
from seu_bench.data.streams import TaskStream
from seu_bench.errors import RequestError, RunError
from seu_bench.models.alexnet import AlexNetShape
from seu_bench.models.sizes import count_parameters
from seu_bench.training.callbacks import SilentLogger
from seu_bench.training.evaluators import AccuracyMatrix
from seu_bench.training.stage import Stage, StageProgress
from seu_bench.training.task import TaskData
from seu_bench_pnn.model import ProgressiveNetwork

setup_module, teardown_module = one_thread, all_threads

Variant: TypeAlias = Literal["proper", "compat"]

VARIANTS: list[Variant] = ["proper", "compat"]
both = pytest.mark.parametrize("variant", VARIANTS)

#: 3, 6 and 13 channels, 102 hidden units.
WIDTH = 0.05

#: Sizes that differ wherever they may.
SMALL = AlexNetShape(2, 9, 16, (3, 4, 5), 7)

CLASSES = (2, 4, 3)


def stream(groups: Any = ((0, 1), (2, 3, 4), (5, 6)), **more: Any) -> TaskStream:
    return class_stream(groups, **{"images": 16, **more})


def network(variant: Variant, shape: AlexNetShape = SMALL, columns: int = 3, seed: int = 0) -> ProgressiveNetwork:
    """A network of which the newest column trains."""
    torch.manual_seed(seed)
    made = ProgressiveNetwork(shape, CLASSES, variant)
    for task in range(columns):
        made.freeze()
        made.expand(task)
    return made


def images(count: int = 6, shape: AlexNetShape = SMALL) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.randn(count, shape.image_channels, shape.height, shape.width, generator=generator)


# --- sizes --------------------------------------------------------------------------------------------------------


def column_size(shape: AlexNetShape, t: int, n: int) -> int:
    """Parameters of column t with n classes: its layers, and a lateral of s, V and U into each but the first."""
    inputs = (shape.image_channels, *shape.convolutions[:2], shape.flat, shape.linear, shape.linear)
    outputs = (*shape.convolutions, shape.linear, shape.linear, n)
    kernels = (9, 9, 9, 1, 1, 1)
    layers = [(k * i + 1) * o for k, i, o in zip(kernels, inputs, outputs, strict=True)]
    laterals = [t + i * (i * t + 1) + layer for i, layer in zip(inputs[1:], layers[1:], strict=True)]
    return sum(layers) + (sum(laterals) if t else 0)


@both
@pytest.mark.parametrize("shape", [SMALL, AlexNetShape(1, 8, 8, (1, 1, 1), 1), AlexNetShape(3, 24, 17, (2, 5, 3), 4)])
def test_parameters_of_columns(variant: Variant, shape: AlexNetShape) -> None:
    """Each column has as many parameters as the formula says, in both variants."""
    made = network(variant, shape)
    assert [count_parameters(column) for column in made.columns] == [
        column_size(shape, task, classes) for task, classes in enumerate(CLASSES)
    ]
    assert [tuple(lateral.scales.shape) for lateral in made.column(2).laterals] == [(2,)] * 5


COLUMNS = {
    "split_cifar10": [12_961_922, 51_116_745, 76_303_054, 101_489_363, 126_675_672],
    "pmnist": [
        *(9_307_146, 32_337_753, 46_055_262, 59_772_771, 73_490_280),
        *(87_207_789, 100_925_298, 114_642_807, 128_360_316, 142_077_825),
    ],
}

TOTALS = {
    "split_cifar10": 368_546_756,
    "split_cifar100": 368_878_694,
    "pmnist": 794_177_247,
    "mixture": 368_731_166,
}

CLASSES_OF = {"split_cifar100": [20] * 5, "mixture": [28, 10, 10, 10, 10]}


@cache
def cost(command: Command, *arguments: object) -> dict[str, Any]:
    answer = command("cost", "--strategy", "pnn", "--format", "json", *arguments)
    assert (answer.status, answer.err) == (0, "")
    document: dict[str, Any] = json.loads(answer.out)
    return document


@both
@pytest.mark.parametrize(
    "benchmark", [pytest.param(name, marks=[] if name == "split_cifar10" else pytest.mark.long) for name in TOTALS]
)
def test_published_sizes(command: Command, benchmark: str, variant: Variant) -> None:
    """The four networks of the paper, column by column, to the unit."""
    document = cost(command, "--benchmark", benchmark, "--protocol", "paper", "-o", f"variant={variant}")
    total = document["params_total"]
    assert total[-1] == TOTALS[benchmark]
    assert document["params_total_min"] == total
    columns = [after - before for before, after in pairwise([0, *total])]
    if benchmark in COLUMNS:
        assert columns == COLUMNS[benchmark]
    else:
        shape = AlexNetShape(3, 32, 32)
        assert columns == [column_size(shape, task, n) for task, n in enumerate(CLASSES_OF[benchmark])]


PUBLISHED_MACS = {
    "split_cifar10": (2, [52.1, 177.6, 257.0, 340.6, 428.3]),
    "pmnist": (10, [38.5, 125.7, 179.2, 237.0, 299.0, 365.2, 435.5, 510.1, 588.9, 671.8]),
}


@pytest.mark.parametrize("benchmark", PUBLISHED_MACS)
def test_macs_of_compat(command: Command, benchmark: str) -> None:
    """The published code's multiply-accumulates are the path's and those of what it computes beside it.

    That is the second linear layer of the earlier columns, which only laterals into heads read, every other task's
    head, and the laterals into the heads of the tasks before.
    """
    document = cost(command, "--benchmark", benchmark, "--protocol", "paper", "-o", "variant=compat")
    classes, published = PUBLISHED_MACS[benchmark]
    tasks, second, head = len(published), 2048 * 2048, 2048 * classes
    beside = [
        t * second + (tasks - 1) * head + sum(earlier * second + head for earlier in range(1, t)) for t in range(tasks)
    ]
    found = [(path + more) / 1e6 for path, more in zip(document["macs"], beside, strict=True)]
    assert [round(value, 1) for value in found] == published
    assert document["macs_min"] == document["macs"]


def test_macs_of_proper_by_hand(command: Command) -> None:
    """Task 1 of split CIFAR-10: two columns, one head, and the second column's five laterals."""
    document = cost(command, "--benchmark", "split_cifar10", "--protocol", "paper", "-o", "variant=proper")
    plain = 32**2 * 27 * 64 + 16**2 * 576 * 128 + 8**2 * 1152 * 256 + 4096 * 2048 + 2048 * 2048
    head = 2048 * 2
    reductions = 16**2 * 64 * 64 + 8**2 * 128 * 128 + 4096 * 4096 + 2 * 2048 * 2048
    projections = plain - 32**2 * 27 * 64 + head
    assert document["macs"][:2] == [plain + head, 2 * plain + head + reductions + projections]


def test_passes(command: Command) -> None:
    """Image passes are those of any strategy of one training stage per task."""
    asked = ("--benchmark", "split_cifar10", "--protocol", "paper")
    other = command("cost", "--strategy", "naive", "--format", "json", *asked)
    for name in ("stages", "image_passes", "evaluation_passes"):
        assert cost(command, *asked, "-o", "variant=proper")[name] == json.loads(other.out)[name]


#: Runs the command after the imports that every cost needs; prints bytes before and after.
MEASURED = """
import resource, sys
import torch, avalanche
from seu_bench.cli.main import main

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

before = peak()
sys.argv = ["seu-bench", "cost", "--strategy", "pnn", "--benchmark", "pmnist", "--protocol", "paper"]
try:
    main()
except SystemExit as left:
    assert left.code == 0
print(before, peak())
"""

#: A process's peak counts what its parent had when it was started, so the parent is a small one.
SMALL_PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]], check=True)"


@pytest.mark.long
def test_cost_needs_no_memory_for_weights(tmp_path: Path) -> None:
    """Counting 794 million parameters (3.2 GB) adds next to nothing to what importing torch and Avalanche takes."""
    answer = subprocess.run(
        [sys.executable, "-c", SMALL_PARENT, MEASURED], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert "794,177,247 parameters" in answer.stdout
    before, after = (int(number) for number in answer.stdout.splitlines()[-1].split())
    assert after < 2**30
    assert after - before < 50 * 2**20


def test_width(command: Command) -> None:
    """The option, and otherwise the protocol, multiplies the widths of every column."""
    asked = ("--benchmark", "split_cifar10", "-o", "width=0.5")
    shape = AlexNetShape(3, 32, 32, (32, 64, 128), 1024)
    expected = [sum(column_size(shape, task, 2) for task in range(learned + 1)) for learned in range(5)]
    assert cost(command, *asked)["params_total"] == expected
    smoke = AlexNetShape.of(3, 32, 32, 0.125)
    assert cost(command, "--benchmark", "split_cifar10", "--protocol", "smoke")["params_total"][0] == column_size(
        smoke, 0, 2
    )


def test_images_too_small() -> None:
    """Three poolings leave nothing of images below 8x8: refused in words, by the cost as by the strategy."""
    plan = StreamPlan(1, 8, 7, (TaskPlan("one", 2, 4, 2, 2),), (0,))
    factory = registry().strategies.find("pnn").factory
    for make in (factory.build, factory.cost):
        with pytest.raises(RequestError, match="at least 8x8 pixels, not 8x7"):
            make(context(plan, "pnn", {}))


def test_weight_decay_is_its_own() -> None:
    """The published code has one weight decay for every benchmark; ``None`` is the protocol's."""
    source = stream()
    made = context(source.plan, "pnn", {})
    protocol = made.protocol.model_copy(
        update={"training": made.protocol.training.model_copy(update={"weight_decay": 0.02})}
    )
    factory = registry().strategies.find("pnn").factory
    for options, expected in (({}, 3e-4), ({"weight_decay": None}, 0.02), ({"weight_decay": 0.5}, 0.5)):
        strategy: Any = factory.build(replace(context(source.plan, "pnn", options), protocol=protocol))
        assert strategy.schedule.weight_decay == expected


# --- what is computed ---------------------------------------------------------------------------------------------


def reference(state: dict[str, Tensor], x: Tensor, task: int, variant: Variant) -> Tensor:
    """Logits without dropout, straight from the formula: everything is computed anew wherever it is named."""

    def affine(name: str, value: Tensor) -> Tensor:
        weight, bias = state[f"{name}.weight"], state[f"{name}.bias"]
        if weight.dim() == 4:
            return functional.conv2d(value, weight, bias, padding=weight.shape[-1] // 2)
        return value @ weight.T + bias

    def hidden(column: int, depth: int, laterals: bool) -> Tensor:
        """The input of the layer at a depth."""
        if depth == 0:
            return x
        value = output(column, depth - 1, laterals).relu()
        if depth <= 3:
            value = functional.max_pool2d(value, 2)
        return value.reshape(len(x), -1) if depth == 3 else value

    def output(column: int, depth: int, laterals: bool) -> Tensor:
        """W(h), and U(ReLU(V(concat s h))) where there is a lateral."""
        total = affine(f"columns.{column}.layers.{depth}", hidden(column, depth, laterals))
        if laterals and column and depth and not (variant == "compat" and depth == 5):
            name = f"columns.{column}.laterals.{depth - 1}"
            # In the published code earlier columns are computed as if they had no laterals.
            earlier = [
                state[f"{name}.scales"][other] * hidden(other, depth, variant == "proper") for other in range(column)
            ]
            total = total + affine(f"{name}.projection", affine(f"{name}.reduction", torch.cat(earlier, 1)).relu())
        return total

    return output(task, 5, True)


@both
@pytest.mark.parametrize("mode", ["eval", "train without dropout"])
def test_outputs_by_the_formula(variant: Variant, mode: str) -> None:
    """Three columns of unequal heads compute what the formula says."""
    shape = SMALL if mode == "eval" else replace(SMALL, dropout=(0.0,) * 5)
    made = network(variant, shape).double().train(mode != "eval")
    state, x = made.state_dict(), images().double()
    for task, classes in enumerate(CLASSES):
        found = made.forward_single_task(x, task)
        assert found.shape == (6, classes)
        assert torch.allclose(found, reference(state, x, task, variant), rtol=1e-12, atol=1e-12)
    other = reference(state, x, 2, "compat" if variant == "proper" else "proper")
    assert not torch.allclose(found, other, rtol=1e-2)


@both
def test_dropout_of_the_new_column(variant: Variant) -> None:
    """The column that trains drops; in evaluation nothing does."""
    made = network(variant, columns=1)
    x = images()
    assert not torch.equal(made(x, 0), made(x, 0))
    made.eval()
    assert torch.equal(made(x, 0), made(x, 0))


@both
def test_dropout_of_earlier_columns(variant: Variant) -> None:
    """While a column trains, earlier ones compute as in evaluation; in ``compat`` they drop as well."""
    made, x = network(variant), images()
    made.eval()
    quiet = made(x, 2)
    made.train()
    made.column(2).eval()
    assert torch.equal(made(x, 2), quiet) == (variant == "proper")
    assert torch.equal(made(x, 2), made(x, 2)) == (variant == "proper")


class Modes(SupervisedPlugin):  # type: ignore[type-arg]
    """Notes in each training batch which columns are in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[tuple[bool, ...]] = set()

    def after_forward(self, strategy: Any, **kwargs: Any) -> None:
        self.seen.add(tuple(any(part.training for part in column.modules()) for column in strategy.model.columns))


@both
def test_modes_while_training(variant: Variant) -> None:
    """Frozen columns stay in evaluation mode whatever the strategy switches; in ``compat`` they train along."""
    strategy, modes = build(stream(), "pnn", width=WIDTH, variant=variant), Modes()
    strategy.plugins.append(modes)
    learn(stream(), strategy)
    dropping = variant == "compat"
    assert modes.seen == {(True,), (dropping, True), (dropping, dropping, True)}


@both
def test_earlier_columns_are_computed_once(variant: Variant) -> None:
    """One sweep: no layer of any column is computed twice, and none whose output nobody reads."""
    made = network(variant)
    calls: dict[str, int] = {}

    def note(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, given: Any, output: Any) -> None:
            calls[name] = calls.get(name, 0) + 1

        return hook

    names = {name: module for name, module in made.named_modules() if isinstance(module, nn.Conv2d | nn.Linear)}
    for name, module in names.items():
        module.register_forward_hook(note(name))
    made(images(), 2)
    path = {id(module) for module in made.task_module(2).modules()}
    assert calls == {name: 1 for name, module in names.items() if id(module) in path}


@both
def test_gradients(variant: Variant) -> None:
    """All of the new column learns, each scalar, V and U too, and nothing of the earlier ones."""
    made, x = network(variant, replace(SMALL, dropout=(0.0,) * 5), seed=1), images(32)
    earlier = [parameter for task in (0, 1) for parameter in made.column(task).parameters()]
    assert not any(parameter.requires_grad for parameter in earlier)
    for parameter in earlier:
        parameter.requires_grad_()  # not even then: no graph is made of earlier columns
    functional.cross_entropy(made(x, 2), torch.arange(32) % 3).backward()
    assert all(parameter.grad is None for parameter in earlier)
    trained = {id(parameter) for parameter in made.trainable_module(2).parameters()}
    for name, parameter in made.column(2).named_parameters():
        if variant == "compat" and name.startswith("laterals.4."):
            assert parameter.grad is None and id(parameter) not in trained
        else:
            assert parameter.grad is not None and id(parameter) in trained
            assert bool(parameter.grad.all() if name.endswith("scales") else parameter.grad.any()), name


@both
def test_paths(variant: Variant) -> None:
    """A task's path is what its logits depend on, and every part of it once: the rest may be anything."""
    made = network(variant).eval()
    before = made(images(), 1)
    parameters = list(made.task_module(1).parameters())
    path = {id(parameter) for parameter in parameters}
    assert len(path) == len(parameters)
    for parameter in made.parameters():
        if id(parameter) not in path:
            parameter.data.fill_(float("nan"))
    assert torch.equal(made(images(), 1), before)
    for parameter in parameters:
        kept = parameter.data.clone()
        parameter.data.fill_(float("nan"))
        assert bool(made(images(), 1).isnan().any())
        parameter.data.copy_(kept)
    assert {id(parameter) for parameter in made.trainable_module(1).parameters()} <= path


def test_head_lateral_of_compat() -> None:
    """It is there and counted, keeps its first weights, and has no influence."""
    strategy = build(stream(), "pnn", width=WIDTH, variant="compat")
    learn(stream(), strategy, tasks=1)
    stage = training(strategy, 1)
    lateral = strategy.model.column(1).head_lateral
    assert count_parameters(lateral) == 1 + 102 * 103 + 103 * 3
    first = weights(strategy.model.column(1))
    stage.run()
    last = weights(strategy.model.column(1))
    assert {name for name in last if torch.equal(first[name], last[name])} == {
        name for name in last if name.startswith("laterals.4.")
    }
    before = logits_of(strategy.model, stream(), 1)
    for parameter in lateral.parameters():
        parameter.data.fill_(float("nan"))
    assert torch.equal(logits_of(strategy.model, stream(), 1), before)


# --- learning -----------------------------------------------------------------------------------------------------


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
        """What of an earlier column a later task does not need."""
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
    """A task without a column is neither learned out of turn, nor twice, nor evaluated."""
    source = stream()
    strategy, scenario = build(source, "pnn", width=WIDTH), source.avalanche()
    with pytest.raises(RunError, match="task 1 cannot get column 0"):
        strategy.train(scenario.train_stream[1])
    strategy.train(scenario.train_stream[0])
    with pytest.raises(RunError, match="task 0 cannot get column 1"):
        strategy.train(scenario.train_stream[0])
    with pytest.raises(RunError, match="task 1 has no column yet"):
        strategy.eval(scenario.test_stream[:2])


# --- states -------------------------------------------------------------------------------------------------------


def training(strategy: Any, task: int) -> Stage[None]:
    """The stage that trains a task's new column."""
    source = stream()
    strategy.experience = source.avalanche().train_stream[task]
    strategy.adapted_dataset = strategy.experience.dataset
    strategy.make_train_dataloader()
    stage: Stage[None] = strategy.phases(TaskData(task, source.tasks[task].train, source.tasks[task].valid))[0].make()
    return stage


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
