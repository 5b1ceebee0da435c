"""Costs that methods state which cannot be rehearsed: networks that grow, or that no stand-in computes.

``one_path``: all tasks are computed by the same layers up to their heads, so that one of each number of classes stands
for the others; counting is most of what an estimate takes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch

from seu_bench.config.common_options import SelectingOptions
from seu_bench.config.protocol import Schedule
from seu_bench.data.planning import StreamPlan
from seu_bench.models.multihead import MultiHeadModel
from seu_bench.models.sizes import count_macs, count_parameters, state_bytes
from seu_bench.training import Cost, PassFlops, StageCost, StrategyContext, evaluation_passes, on_meta, pass_flops

T = TypeVar("T")


def task_flops(model: MultiHeadModel, plan: StreamPlan, *, one_path: bool = False) -> tuple[PassFlops, ...]:
    """Operations per image on each task's path, of a model on the meta device; what requires gradients trains."""
    model.train()
    return _by_task(lambda forward: pass_flops(forward, plan), model, plan, one_path=one_path)


def task_macs(model: MultiHeadModel, plan: StreamPlan, *, one_path: bool = False) -> tuple[int, ...]:
    """Multiply-accumulates per image on each task's path, of a model on the meta device."""
    model.eval()
    sample, meta = plan.input, torch.device("meta")
    count = functools.partial(count_macs, shape=sample.shape, device=meta, dtype=sample.dtype)
    return _by_task(count, model, plan, one_path=one_path)


def _by_task(
    count: Callable[[Callable[[Any], Any]], T], model: MultiHeadModel, plan: StreamPlan, *, one_path: bool
) -> tuple[T, ...]:
    heads, known, found = plan.classes_per_task, dict[int, T](), list[T]()
    for task, width in enumerate(heads):
        model.begin_task(task)  # a head of the model may grow with each
        path = heads.index(width) if one_path and plan.scenario != "class" else task
        if path not in known:
            known[path] = count(functools.partial(model.forward_single_task, task_label=path))
        found.append(known[path])
    return tuple(found)


def price_stages(stages: Sequence[StageCost], costs: Sequence[PassFlops]) -> list[StageCost]:
    """Stages on each task's path with the operations of their image passes, by task."""
    flops = [it.train * costs[it.task].train + it.evaluate * costs[it.task].evaluate for it in stages]
    return [replace(it, flops=count, flops_min=count) for it, count in zip(stages, flops, strict=True)]


def training_passes(plan: StreamPlan, schedule: Schedule, *, validate: bool = True) -> list[StageCost]:
    """Image passes of each task's training stage, with validation after each epoch if ``validate``."""
    epochs = [schedule.of_task(index).epochs for index in range(len(plan.tasks))]
    return [
        StageCost("training", index, epochs[index] * task.num_train, epochs[index] * task.num_valid if validate else 0)
        for index, task in enumerate(plan.tasks)
    ]


def fixed_size_cost(context: StrategyContext, build: Callable[[], MultiHeadModel]) -> Cost:
    """Exact cost of a strategy that trains a network of fixed size, made by ``build``, in one stage per task, and keeps
    nothing else."""
    options, plan, model = context.options, context.plan, on_meta(build)
    validate = isinstance(options, SelectingOptions) and options.restore == "best_valid"
    learning = training_passes(plan, options.applied_to(context.protocol.training), validate=validate)
    stages = *price_stages(learning, task_flops(model, plan)), *evaluation_passes(plan)
    params, memory = ((count(model),) * len(plan.tasks) for count in (count_parameters, state_bytes))
    macs = task_macs(model, plan)
    return Cost(params, params, macs, macs, stages, memory, memory)
