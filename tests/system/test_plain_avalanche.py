"""Strategies in plain Avalanche scripts: any installed one by its name, with Avalanche's own metrics; the example."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from avalanche.benchmarks import benchmark_from_datasets, with_task_labels
from avalanche.benchmarks.utils import (
    TaskLabels,
    as_classification_dataset,
)
from avalanche.evaluation.metrics import accuracy_metrics
from avalanche.models import MTSimpleMLP, SimpleMLP
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.supervised import Naive
from avalanche.training.templates import SupervisedTemplate
from torch.utils.data import TensorDataset

import seu_bench
from seu_bench.avalanche import plan_of
from seu_bench.errors import OptionError, RequestError, UnknownNameError
from seu_bench.training import AccuracyMatrix
from seu_bench.training.monitoring import SilentLogger

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "plain_avalanche.py"
#: What makes SEU learn in no time.
SMALL = {"cells": 3, "channels": 2, "epochs": 1, "batch_size": 16} | {
    f"{part}.{key}": value
    for part, values in (
        ("searcher", {"epochs": 1, "batch_size": 16, "cells": 3, "channels": 2}),
        ("creator", {"epochs": 1, "batch_size": 16}),
    )
    for key, value in values.items()
}


def tasks(*shapes: tuple[int, ...], labels: bool = True, numbers: Any = ((0, 1), (0, 1, 2))) -> Any:
    """A benchmark as any Avalanche user would make it: a task of random images for each shape."""

    def split(seed: int) -> list[Any]:
        made = []
        for task, shape in enumerate(shapes):
            generator = torch.Generator().manual_seed(seed + task)
            data: Any = TensorDataset(
                torch.rand(24, *shape, generator=generator), torch.tensor(numbers[task] * 24)[:24]
            )
            data.targets = data.tensors[1].tolist()
            known = as_classification_dataset(data)
            made.append(known.update_data_attribute("targets_task_labels", TaskLabels([task * labels] * 24)))
        return made

    return with_task_labels(benchmark_from_datasets(train=split(0), test=split(10)))


SHAPE = (1, 8, 8)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("seu", SMALL),
        ("ewc", {"epochs": 1, "backbone": "mlp"}),
        ("derpp", {"epochs": 1, "backbone": "mlp", "memory": 9}),
        ("slda", {}),
        ("pnn", {"epochs": 1, "width": 0.1}),
    ],
)
def test_learns(name: str, options: dict[str, Any]) -> None:
    """With a head as wide as each task; evaluators get what they get in any script."""
    benchmark = tasks(SHAPE, SHAPE)
    matrix = AccuracyMatrix(2)
    evaluator = EvaluationPlugin(matrix, accuracy_metrics(experience=True), loggers=[SilentLogger()])  # type: ignore[no-untyped-call]
    strategy = seu_bench.make_strategy(name, benchmark, options=options, evaluator=evaluator)
    assert isinstance(strategy, SupervisedTemplate)
    assert tuple(strategy.model.classes_per_task) == (2, 3)
    for experience in benchmark.train_stream:
        strategy.train(experience)
        found = strategy.eval(benchmark.test_stream[: experience.current_experience + 1])
    assert sum(key.startswith("Top1_Acc_Exp/") for key in found) == 2
    assert all(value is not None for value in matrix.result()[1])


@pytest.mark.parametrize(
    ("name", "asked", "error", "said"),
    [
        ("sue", {}, UnknownNameError, "did you mean 'seu'"),
        ("ewc", {"options": {"epoch": 1}}, OptionError, "'epoch' is not an option"),
        ("ewc", {"options": {"benchmark.stream.validation": 1}}, OptionError, "is an option of runs and benchmarks"),
        ("ewc", {"searcher": "mdl"}, RequestError, "takes no searcher"),
        ("seu", {"seed": -1}, OptionError, "seed: .*-1"),
    ],
)
def test_refused(name: str, asked: dict[str, Any], error: type[Exception], said: str) -> None:
    """As the command line would."""
    with pytest.raises(error, match=said):
        seu_bench.make_strategy(name, tasks(SHAPE, SHAPE), **asked)


def test_benchmarks_that_do_not_fit() -> None:
    """Without task labels, of several shapes, of images that are no tensors."""
    with pytest.raises(RequestError, match="2 experiences with 1 different task labels"):
        seu_bench.make_strategy("ewc", tasks(SHAPE, SHAPE, labels=False, numbers=((1, 2), (0,))))
    with pytest.raises(RequestError, match=r"of experience 1 are of shape .* of one shape"):
        seu_bench.make_strategy("ewc", tasks(SHAPE, (1, 6, 6)))
    with pytest.raises(RequestError, match=r"of experience 0 are of shape \(64,\)"):
        seu_bench.make_strategy("ewc", tasks((64,), (64,)))


def test_without_task_labels_the_classes_say_the_scenario() -> None:
    """The same ones in each experience: domains; one head answers for both."""
    benchmark = tasks(SHAPE, SHAPE, labels=False, numbers=((0, 1), (0, 1)))
    assert plan_of(benchmark).scenario == "domain"
    strategy = seu_bench.make_strategy("naive", benchmark, options={"epochs": 1, "backbone": "mlp"})
    for experience in benchmark.train_stream:
        strategy.train(experience)
    assert len(strategy.model.heads) == 1 and strategy.model(torch.rand(2, *SHAPE), 0).shape == (2, 2)
    with pytest.raises(RequestError, match="cannot learn the scenario 'domain'"):
        seu_bench.make_strategy("pnn", benchmark)


def apart(kind: str) -> Any:
    """Three tasks of different numbers of images whose classes are easy to tell apart: a bright row for each."""

    def split(task: int, images: int, noise: float) -> Any:
        first = 2 * task if kind in ("class", "unlabelled") else 0
        labels = torch.arange(images * (task + 1)) % 2 + first
        pixels = noise * torch.rand(len(labels), *SHAPE)
        pixels[torch.arange(len(labels)), 0, labels + task * (kind == "task")] += 2
        data: Any = TensorDataset(pixels, labels)
        data.targets = labels.tolist()
        known = as_classification_dataset(data)
        told = TaskLabels([task if kind == "task" else 0] * len(labels))
        return known if kind == "unlabelled" else known.update_data_attribute("targets_task_labels", told)

    made = benchmark_from_datasets(
        **{name: [split(task, images, 0.1) for task in range(3)] for name, images in (("train", 40), ("test", 10))}
    )
    return made if kind == "unlabelled" else with_task_labels(made)


def measured(strategy: Any, benchmark: Any, *, whole: bool = True) -> list[dict[str, float]]:
    """What Avalanche's accuracies of the test stream are before the first task and after each one."""
    found = [strategy.eval(benchmark.test_stream)] if whole else []
    for task, experience in enumerate(benchmark.train_stream):
        strategy.train(experience)
        found.append(strategy.eval(benchmark.test_stream if whole else benchmark.test_stream[: task + 1]))
    return [{key: value for key, value in row.items() if "Acc" in key} for row in found]


def accuracies() -> Any:
    return EvaluationPlugin(accuracy_metrics(experience=True, stream=True), loggers=[SilentLogger()])  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    "kind", ["class", "task", *(pytest.param(name, marks=pytest.mark.long) for name in ("unlabelled", "domain"))]
)
def test_whole_stream(kind: str) -> None:
    """Evaluated as Avalanche's own strategy is: the same values under the same names, of classes not seen yet 0; the
    weights are those of a script that evaluates learned tasks only."""
    benchmark, options = apart(kind), {"epochs": 8, "batch_size": 8, "backbone": "mlp"}
    strategy, other = (
        seu_bench.make_strategy("naive", benchmark, options=options, evaluator=accuracies()) for _ in range(2)
    )
    found, learned = measured(strategy, benchmark), measured(other, benchmark, whole=False)
    assert all(map(torch.equal, strategy.model.parameters(), other.model.parameters()))
    torch.manual_seed(0)
    net = MTSimpleMLP(input_size=64) if kind == "task" else SimpleMLP(num_classes=6, input_size=64)
    if kind == "task":
        for experience in (*benchmark.train_stream, *benchmark.test_stream):
            experience.classes_in_this_experience = [0, 1]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    stock = Naive(
        model=net, optimizer=optimizer, train_mb_size=8, train_epochs=8, eval_mb_size=64, evaluator=accuracies()
    )
    expected = measured(stock, benchmark)
    for task, (row, known, theirs) in enumerate(zip(found[1:], learned, expected[1:], strict=True)):
        assert row.keys() == theirs.keys()
        mine, ours, stocks = (
            [value for key, value in sorted(it.items()) if "Acc_Exp" in key] for it in (known, row, theirs)
        )
        assert ours[: task + 1] == mine[: task + 1] and ours[task] > 0.9
        if kind != "task":
            (stream,) = (value for key, value in row.items() if "Acc_Stream" in key)
            assert stream == pytest.approx(sum(value * (place + 1) for place, value in enumerate(ours)) / 6)
        if kind in ("class", "unlabelled"):
            assert ours[task + 1 :] == stocks[task + 1 :] == [0.0] * (2 - task)
    assert len(found) == 4 and found[0].keys() == expected[0].keys()


@pytest.mark.parametrize(
    ("name", "kind", "options"),
    [
        ("pnn", "task", {"width": 0.1}),
        ("pnn", "class", {"width": 0.1, "infer_task": "entropy"}),
        ("replay", "class", {"backbone": "mlp"}),
        ("replay", "unlabelled", {"backbone": "mlp"}),
        ("mas", "unlabelled", {"backbone": "mlp"}),
        ("icarl", "class", {"backbone": "mlp"}),
        pytest.param("seu", "task", SMALL, marks=pytest.mark.long),
    ],
)
def test_whole_stream_of_other_strategies(name: str, kind: str, options: dict[str, Any]) -> None:
    """Those that have no path for a task yet answer its images by guessing; no class not seen yet is answered."""
    benchmark = apart(kind)
    strategy = seu_bench.make_strategy(name, benchmark, options={"epochs": 1} | options, evaluator=accuracies())
    for row in measured(strategy, benchmark)[1:2]:
        unseen = [value for key, value in row.items() if "Exp001" in key or "Exp002" in key]
        assert unseen == ([0.5, 0.5] if kind == "task" else [0.0, 0.0])


@pytest.mark.long
def test_example(capsys: pytest.CaptureFixture[str]) -> None:
    """It runs, learns what is easy to tell apart, and needs no more than three imports of ours."""
    spec = importlib.util.spec_from_file_location("plain_avalanche", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rows = module.main()
    assert [[value is not None for value in row] for row in rows] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]
    assert min(value for value in rows[-1] if value is not None) > 0.8
    assert "bytes kept for later tasks" in capsys.readouterr().out
    nodes = [node for node in ast.walk(ast.parse(EXAMPLE.read_text("utf-8"))) if isinstance(node, ast.ImportFrom)]
    ours = [node.module for node in nodes if (node.module or "").startswith("seu_bench")]
    assert ours == ["seu_bench", "seu_bench.training"]
