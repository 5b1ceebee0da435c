"""Answers of paths that stay: computed once, and again where anything that they are computed by is another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from avalanche.training.plugins import EvaluationPlugin
from support.tiny import all_threads, class_stream, learn, one_thread, registry
from torch import nn

from seu_bench.config.run import Request
from seu_bench.engine.resolve import resolve
from seu_bench.training.monitoring import AccuracyMatrix, SilentLogger

setup_module, teardown_module = one_thread, all_threads

OPTIONS: dict[str, dict[str, Any]] = {"seu": {"cells": 3, "channels": 2}, "pnn": {"width": 0.05}}
NEW = {"searcher": "random", "creator": "all_new"}
STREAM = class_stream([[0, 1], [2, 3], [4, 5]], test=20)


def learned(name: str) -> tuple[Any, Callable[[], tuple[list[Any], list[int]]]]:
    """A strategy after three tasks, and what evaluates it: the row of its matrix, and the tasks that were computed."""
    matrix = AccuracyMatrix(3)
    evaluator = EvaluationPlugin(matrix, loggers=[SilentLogger()], collect_all=False)
    options = {"epochs": 2, "batch_size": 16, **OPTIONS.get(name, {})}
    run = resolve(registry(), Request(strategy=name, protocol="smoke", options=options, **NEW if name == "seu" else {}))
    strategy = learn(STREAM, run.build(run.context(STREAM.plan, evaluator=evaluator)))
    model, computed = strategy.model, list[int]()
    compute = model.forward_single_task
    model.forward_single_task = lambda x, task_label: (computed.append(task_label), compute(x, task_label))[1]

    def evaluated() -> tuple[list[Any], list[int]]:
        computed.clear()
        strategy.eval(STREAM.avalanche().streams["test"])
        return list(matrix.matrix[2]), list(computed)

    return strategy, evaluated


def by_hand(model: Any) -> list[float]:
    """Accuracies of images that nobody knows."""
    found = []
    for task, splits in enumerate(STREAM.tasks):
        x, y = splits.test.gather(torch.arange(len(splits.test)))
        with torch.no_grad():
            found.append(float((model.eval().forward_single_task(x, task).argmax(dim=1) == y).double().mean()))
    return found


@pytest.mark.parametrize("name", ["seu", "pnn", "ltg", "mntdp", "pathnet", "independent", "linear", "naive"])
def test_computed_once(name: str) -> None:
    """What comes back is what was computed; naive has nothing that stays."""
    strategy, evaluated = learned(name)
    assert evaluated() == (row := by_hand(strategy.model), [0, 1, 2])
    assert evaluated() == (row, [0, 1, 2] if name == "naive" else [])


def negate(module: nn.Module) -> None:
    for weight in module.parameters():
        weight.data.neg_()  # which torch's own count of changes does not see


CHANGES: dict[str, Callable[[Any], Any]] = {
    "head": lambda model: negate(model.heads[1]),
    "unit": lambda model: negate(model.unit(1, 1)),
    "statistics": lambda model: next(iter(model.unit(1, 1).buffers())).add_(50),
    "path": lambda model: model.set_path(1, (0, 0, 0, 0)),
    "hook": lambda model: model.unit(3, 1).register_forward_hook(lambda *_: -_[2]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changed_is_measured(change: str) -> None:
    """However an old task's path came to be another, its accuracy is that of the path as it is; others stay."""
    strategy, evaluated = learned("seu")
    before, _ = evaluated()
    CHANGES[change](strategy.model)
    row, computed = evaluated()
    assert computed == [1] and row == by_hand(strategy.model) and row[::2] == before[::2]
    assert change != "head" or row[1] < 0.5 < before[1]


def test_tried_paths_are_computed() -> None:
    """While a creator tries paths, nothing is read back."""
    strategy, evaluated = learned("seu")
    evaluated()
    strategy.model.trials[0] = strategy.model.paths[0]
    assert evaluated()[1] == [0, 1, 2]
