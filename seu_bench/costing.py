"""What strategies' cost estimates have in common: image passes of training and of evaluation, sizes on the meta
device."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from seu_bench.interfaces import Cost, StageCost, StreamPlan
from seu_bench.spec import Schedule

if TYPE_CHECKING:
    from seu_bench.multihead import MultiHeadModel

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


def fixed_cost(params: int, macs: tuple[int, ...], stages: list[StageCost]) -> Cost:
    """The cost of a strategy whose model never grows; ``macs`` per task, since heads may differ in width."""
    constant = (params,) * len(macs)
    return Cost(constant, constant, macs, macs, tuple(stages))


def task_macs(model: MultiHeadModel, plan: StreamPlan) -> tuple[int, ...]:
    """Multiply-accumulates per image on each task's path, of a model on the meta device."""
    import torch

    from seu_bench.sizes import count_macs

    model.eval()
    shape, meta = (plan.channels, plan.height, plan.width), torch.device("meta")
    return tuple(
        count_macs(functools.partial(model.forward_single_task, task_label=task), shape, meta)
        for task in range(len(plan.tasks))
    )
