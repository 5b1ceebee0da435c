"""Cost estimate of iCaRL: exact where each class has as many images as exemplars are asked of it."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

from seu_bench.data import StreamPlan
from seu_bench.models import count_parameters, state_bytes
from seu_bench.training import (
    Cost,
    KeptImages,
    PassFlops,
    StageCost,
    StrategyContext,
    checked_options,
    evaluation_passes,
    fixed_cost,
    on_meta,
    pass_flops,
    task_flops,
    task_macs,
)
from seu_bench_icarl import IcarlOptions
from seu_bench_icarl.strategy import exemplar_model


def icarl_cost(context: StrategyContext) -> Cost:
    """Targets of earlier classes, training on new images and exemplars, herding, and the means of exemplars.

    How many images of a task are of which class is not known before they are drawn: operations and memory are ranges,
    and passes those of classes that have as many images as exemplars are asked of them.
    """
    plan = context.plan
    model = on_meta(lambda: exemplar_model(context))
    paths, backbone = task_flops(model, plan), pass_flops(model.backbone, plan)
    most, least = (kept_exemplars(context, at_least=at_least) for at_least in (False, True))
    stages = []
    for upper, lower in zip(_passes(context, most), _passes(context, least), strict=True):
        price = PassFlops(0, backbone.evaluate) if upper.name == "exemplars" else paths[upper.task]
        flops, flops_min = (it.train * price.train + it.evaluate * price.evaluate for it in (upper, lower))
        stages.append(replace(upper, flops=flops, flops_min=flops_min))
    cost = fixed_cost(count_parameters(model), task_macs(model, plan), [*stages, *evaluation_passes(plan)])
    own = state_bytes(model)
    memory, memory_min = (tuple(own + _bytes(plan, counts) for counts in kept) for kept in (most, least))
    return replace(cost, memory_bytes=memory, memory_bytes_min=memory_min)


def kept_exemplars(context: StrategyContext, *, at_least: bool) -> list[list[int]]:
    """Exemplars of each task so far after each task: where its images are spread over its classes, or at least."""
    memory, plan = checked_options(context, IcarlOptions).memory, context.plan
    tasks, seen = plan.tasks, list(accumulate(task.num_train for task in plan.tasks))
    found = []
    for last, classes in enumerate(accumulate(task.num_classes for task in tasks)):
        each = memory // classes
        limits = [each * min(task.num_classes, 1 if at_least else classes) for task in tasks[: last + 1]]
        # Images of a later task may be those of an earlier class that comes back.
        images = [seen[last] if plan.repeats_classes and not at_least else task.num_train for task in tasks]
        found.append([min(pair) for pair in zip(limits, images, strict=False)])
    return found


def _passes(context: StrategyContext, kept: list[list[int]]) -> list[StageCost]:
    """Passes of learning, with so many exemplars after each task."""
    options, plan = checked_options(context, IcarlOptions), context.plan
    epochs, versions = options.applied_to(context.protocol.training).epochs, 2 if options.mirror else 1
    stages = []
    for task, planned in enumerate(plan.tasks):
        together = planned.num_train + (sum(kept[task - 1]) if task else 0)
        if task:
            stages.append(StageCost("teaching", task, 0, together))
        stages.append(StageCost("training", task, epochs * together, 0))
        returning = len(planned.labels) - planned.num_classes  # classes, of which the exemplars are candidates, too
        earlier = returning * (options.memory // sum(plan.classes_per_task[: task + 1]))
        stages.append(StageCost("exemplars", task, 0, planned.num_train + earlier + versions * sum(kept[task])))
    return stages


def _bytes(plan: StreamPlan, counts: list[int]) -> int:
    return sum(KeptImages(count, plan.stored_shape(task)).nbytes for task, count in enumerate(counts))
