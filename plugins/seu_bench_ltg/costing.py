"""Cost estimate of Learn to Grow, as a range: how much is reused is not known before."""

from __future__ import annotations

import torch
from torch import nn

from seu_bench.config import Schedule
from seu_bench.data import batch_bounds
from seu_bench.models import count_parameters, state_bytes
from seu_bench.training import (
    Cost,
    StageCost,
    StrategyContext,
    checked_options,
    evaluation_passes,
    on_meta,
    task_macs,
    training_passes,
)
from seu_bench_ltg import LtgOptions
from seu_bench_ltg.layer import Choice, Decision
from seu_bench_ltg.model import GrowingAlexNet
from seu_bench_ltg.strategy import growing_alexnet, search_schedule


def ltg_cost(context: StrategyContext) -> Cost:
    """Parameters at most: every task all new, since a unit has more of them than an adapter. Multiply-accumulates at
    most: every task adapts the first one's convolutions, since a task computes its unit and all adapters below its
    own. Both at least: every task reuses the first one's units as they are."""
    tasks = len(context.plan.tasks)
    model = on_meta(lambda: growing_alexnet(context))
    heads, head_bytes = count_parameters(model), state_bytes(model)
    with torch.device("meta"):
        model.grow_anew(0)
    first, first_bytes = count_parameters(model), state_bytes(model)
    # Later tasks' paths are the first's own until they adapt it.
    for task in range(1, tasks):
        _follow(model, task, adapt=False)
    macs_min = task_macs(model, context.plan, one_path=True)
    with torch.device("meta"):
        for task in range(1, tasks):
            _follow(model, task, adapt=True)
    params = tuple(first + task * (first - heads) for task in range(tasks))
    macs = task_macs(model, context.plan)
    memory = tuple(first_bytes + task * (first_bytes - head_bytes) for task in range(tasks))
    return Cost(params, (first,) * tasks, macs, macs_min, _stages(context), memory, (first_bytes,) * tasks)


def arch_batches(images: int, schedule: Schedule) -> tuple[int, int]:
    """Steps of one epoch of the search on so many training images, and images in each of its architecture steps."""
    first = images // 2
    steps = len(batch_bounds(first, schedule.batch_size, join=True)) if first else 0
    return steps, min(images - first, schedule.batch_size)


def _follow(model: GrowingAlexNet, task: int, *, adapt: bool) -> None:
    """Let ``task`` use the first task's units, and adapt its convolutions or not."""
    decisions = []
    for index in range(len(model.layers)):
        layer = model.layer(index)
        module: nn.Module | None = layer.make_adapter() if adapt and not layer.linear else None
        decisions.append(Decision(Choice("adapt" if module is not None else "reuse", 0), module))
    model.grow(task, decisions)


def _stages(context: StrategyContext) -> tuple[StageCost, ...]:
    options, plan = checked_options(context, LtgOptions), context.plan
    select = options.restore == "best_valid"
    schedule = search_schedule(context)
    stages = []
    for index, task in enumerate(plan.tasks[1:], start=1):
        steps, batch = arch_batches(task.num_train, schedule)
        train = schedule.epochs * (task.num_train // 2 + steps * batch)
        stages.append(StageCost("search", index, train, schedule.epochs * task.num_valid if select else 0))
    training = options.applied_to(context.protocol.training)
    return (*stages, *training_passes(plan, training, validate=select), *evaluation_passes(plan))
