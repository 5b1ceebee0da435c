"""What strategies' cost estimates have in common: image passes of training and of evaluation, sizes on the meta
device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from seu_bench.interfaces import Cost, StageCost, StreamPlan
from seu_bench.spec import Schedule

ModelT = TypeVar("ModelT")


def training_passes(plan: StreamPlan, schedule: Schedule, *, validate: bool = True) -> list[StageCost]:
    """Each task's training stage: all training images per epoch, and the validation images if weights are selected."""
    return [
        StageCost("training", index, schedule.epochs * task.train, schedule.epochs * task.valid if validate else 0)
        for index, task in enumerate(plan.tasks)
    ]


def evaluation_passes(plan: StreamPlan) -> list[StageCost]:
    """After each task, the test images of all tasks up to it."""
    tests = [task.test for task in plan.tasks]
    return [StageCost("evaluation", index, 0, sum(tests[: index + 1])) for index in range(len(tests))]


def on_meta(build: Callable[[], ModelT]) -> ModelT:
    """Build a model without allocating its weights."""
    import torch

    with torch.device("meta"):
        return build()


def fixed_cost(params: int, macs: int, stages: list[StageCost], tasks: int) -> Cost:
    """The cost of a strategy whose model never grows."""
    return Cost((params,) * tasks, (params,) * tasks, (macs,) * tasks, (macs,) * tasks, tuple(stages))
