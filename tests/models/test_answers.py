"""Answers of paths that stay: computed once, and again where anything that they are computed by is another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from avalanche.training.plugins import EvaluationPlugin
from support.tiny import all_threads, class_stream, one_thread, registry
from torch import nn

from seu_bench.config.run import Request
from seu_bench.engine.resolve import resolve
from seu_bench.training.monitoring import AccuracyMatrix, SilentLogger

setup_module, teardown_module = one_thread, all_threads

MASKED = ("packnet", "wsn", "supsup", "cpg")
STAY = ("seu", "pnn", "ltg", "mntdp", "pathnet", "independent", "linear", *MASKED)
OPTIONS: dict[str, dict[str, Any]] = {name: {"backbone": "conv4"} for name in MASKED}
OPTIONS |= {"seu": {"cells": 3, "channels": 2}, "pnn": {"width": 0.05}}
NEW = {"searcher": "random", "creator": "all_new"}
STREAM = class_stream([[0, 1], [2, 3], [4, 5]], test=20)


def learned(name: str) -> tuple[Any, Callable[[], tuple[list[Any], list[int]]], list[list[int]]]:
    """A strategy after three tasks; what evaluates it: the row of its matrix, and the tasks that were computed; and
    which those were after each task."""
    matrix = AccuracyMatrix(3)
    evaluator = EvaluationPlugin(matrix, loggers=[SilentLogger()], collect_all=False)
    options = {"epochs": 2, "batch_size": 16, **OPTIONS.get(name, {})}
    run = resolve(registry(), Request(strategy=name, protocol="smoke", options=options, **NEW if name == "seu" else {}))
    strategy, streams = run.build(run.context(STREAM.plan, evaluator=evaluator)), STREAM.avalanche().streams
    model, computed = strategy.model, list[int]()
    compute = model.forward_single_task
    model.forward_single_task = lambda x, task_label: (computed.append(task_label), compute(x, task_label))[1]

    def evaluated(tasks: int = 3) -> tuple[list[Any], list[int]]:
        computed.clear()
        strategy.eval(streams["test"][:tasks])
        return list(matrix.matrix[tasks - 1]), list(computed)

    after = []
    for experience in streams["train"]:
        strategy.train(experience, eval_streams=[streams["valid"]])
        after.append(evaluated(experience.current_experience + 1)[1])
    return strategy, evaluated, after


def by_hand(model: Any) -> list[float]:
    """Accuracies of images that nobody knows."""
    found = []
    for task, splits in enumerate(STREAM.tasks):
        x, y = splits.test.gather(torch.arange(len(splits.test)))
        with torch.no_grad():
            found.append(float((model.eval().forward_single_task(x, task).argmax(dim=1) == y).double().mean()))
    return found


@pytest.mark.parametrize("name", [*STAY, "naive"])
def test_computed_once(name: str) -> None:
    """What comes back is what was computed; naive has nothing that stays."""
    strategy, evaluated, after = learned(name)
    assert after == ([[0], [0, 1], [0, 1, 2]] if name == "naive" else [[0], [1], [2]])
    assert evaluated() == (by_hand(strategy.model), [0, 1, 2] if name == "naive" else [])


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
    strategy, evaluated, _ = learned("seu")
    before, _ = evaluated()
    CHANGES[change](strategy.model)
    row, computed = evaluated()
    assert computed == [1] and row == by_hand(strategy.model) and row[::2] == before[::2]
    assert change != "head" or row[1] < 0.5 < before[1]


@pytest.mark.parametrize("name", MASKED)
def test_masks_and_what_they_take_are_looked_at(name: str) -> None:
    """Weights that no task computes with may be anything; a mask that is another is measured, and so is a weight."""
    strategy, evaluated, _ = learned(name)
    model = strategy.model
    weights, free = (model.weights, model.free(3)) if name == "cpg" else (model.weights(), model.free())
    masks = [part.mask for part in model.parts] if name == "cpg" else model.masks
    before, _ = evaluated()
    assert any(bool(none.any()) for none in free)
    for weight, none in zip(weights, free, strict=True):
        weight.data[none] = 9.0
    assert evaluated() == (before, [])
    if name == "packnet":
        model.begin(2)  # as while it is learned, when it computes with all weights
        state = model.path_checksum(2)
        weights[0].data[free[0]] += 1
        assert model.path_checksum(2) != state
        model.finish()
    masks[1].bitwise_not_()
    row, computed = evaluated()
    assert computed == ([1, 2] if name == "packnet" else [1]) and row == by_hand(model)
    for weight in weights:
        weight.data.neg_()
    assert evaluated() == (by_hand(model), [0, 1, 2])


def test_tried_paths_are_computed() -> None:
    """While a creator tries paths, nothing is read back."""
    strategy, evaluated, _ = learned("seu")
    evaluated()
    strategy.model.trials[0] = strategy.model.paths[0]
    assert evaluated()[1] == [0, 1, 2]
