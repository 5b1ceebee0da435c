"""Cost estimate of iCaRL: exact where each class has as many images as exemplars are asked of it."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

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
    """Training on new images and exemplars with a teacher's pass for each; herding, and the means of exemplars."""
    options, plan = checked_options(context, IcarlOptions), context.plan
    schedule = options.applied_to(context.protocol.training)
    model = on_meta(lambda: exemplar_model(context))
    paths, backbone = task_flops(model, plan, one_path=True), pass_flops(model.backbone, plan)
    seen = list(accumulate(plan.classes_per_task))
    kept = [_exemplars(context, options.memory // classes, task) for task, classes in enumerate(seen)]
    stages = []
    for task, planned in enumerate(plan.tasks):
        images = schedule.epochs * (planned.num_train + (sum(kept[task - 1]) if task else 0))
        trained = StageCost("training", task, images, images if task else 0)
        # The teacher has the head that there was before the task.
        before = paths[task - 1] if task else PassFlops(0, 0)
        flops = images * (paths[task].train + before.evaluate)
        stages.append(replace(trained, flops=flops, flops_min=flops))
        chosen = planned.num_train + (2 if options.mirror else 1) * sum(kept[task])
        flops = chosen * backbone.evaluate
        stages.append(StageCost("exemplars", task, 0, chosen, flops, flops))
    cost = fixed_cost(
        count_parameters(model), task_macs(model, plan, one_path=True), [*stages, *evaluation_passes(plan)]
    )
    memory = [
        state_bytes(model) + sum(KeptImages(count, plan.stored_shape(task)).nbytes for task, count in enumerate(counts))
        for counts in kept
    ]
    return replace(cost, memory_bytes=tuple(memory), memory_bytes_min=tuple(memory))


def _exemplars(context: StrategyContext, each: int, last: int) -> list[int]:
    """Exemplars of each task up to ``last``, so many of each class."""
    tasks = context.plan.tasks[: last + 1]
    return [min(each * task.num_classes, task.num_train) for task in tasks]
