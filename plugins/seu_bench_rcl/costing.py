"""Cost estimate of reinforced continual learning: image passes exactly, sizes as a range."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import torch

from seu_bench.models import count_parameters, state_bytes
from seu_bench.training import (
    Cost,
    PassFlops,
    StageCost,
    StrategyContext,
    checked_options,
    evaluation_passes,
    on_meta,
    pass_flops,
    priced,
    task_macs,
    training_passes,
)
from seu_bench_rcl import RclOptions
from seu_bench_rcl.controller import controller_flops
from seu_bench_rcl.search import trial_passes
from seu_bench_rcl.strategy import first_units, growing_network, trial_schedule


@dataclass(frozen=True)
class Sizes:
    """Sizes after each task, operations per image while it is learned, and the number of layers."""

    layers: int
    params: tuple[int, ...]
    memory: tuple[int, ...]
    macs: tuple[int, ...]
    flops: tuple[PassFlops, ...]


def rcl_cost(context: StrategyContext) -> Cost:
    """At most every task but the first adds ``max_units`` units to each layer, at least none but a head."""
    options = checked_options(context, RclOptions)
    most, least = sizes_of(context, options.max_units), sizes_of(context, 0)
    learning = options.trials * controller_flops(most.layers, options.max_units + 1)
    stages = [_with_controller(stage, learning) for stage in priced(_stages(context), most.flops, least.flops)]
    return Cost(
        most.params,
        least.params,
        most.macs,
        least.macs,
        (*stages, *evaluation_passes(context.plan)),
        most.memory,
        least.memory,
    )


def sizes_of(context: StrategyContext, added: int) -> Sizes:
    """Sizes of a network to which each task but the first adds so many units in each layer."""
    plan = context.plan
    network = on_meta(lambda: growing_network(context))
    network.train()
    params, memory, flops = [], [], []
    for task in range(len(plan.tasks)):
        units = first_units(network) if task == 0 else (added,) * len(network.chain)
        with torch.device("meta"):
            network.grow(units)
        params.append(count_parameters(network))
        memory.append(state_bytes(network))
        flops.append(pass_flops(partial(network.forward_single_task, task_label=task), plan))
        network.freeze()
    return Sizes(len(network.chain), tuple(params), tuple(memory), task_macs(network, plan), tuple(flops))


def _stages(context: StrategyContext) -> list[StageCost]:
    options, plan = checked_options(context, RclOptions), context.plan
    training = options.applied_to(context.protocol.training)
    select = options.restore == "best_valid"
    stages = training_passes(plan, training, validate=select)
    if options.finish == "keep":
        stages = stages[:1]
    epochs = trial_schedule(context).epochs
    for index, task in enumerate(plan.tasks[1:], start=1):
        train, score = trial_passes(task.num_train, task.num_valid, epochs, select=select)
        stages.append(StageCost("search", index, options.trials * train, options.trials * score))
    return stages


def _with_controller(stage: StageCost, flops: int) -> StageCost:
    """A search with the operations of its controller, which are the same whatever it draws."""
    if stage.name != "search" or stage.flops is None or stage.flops_min is None:
        return stage
    return replace(stage, flops=stage.flops + flops, flops_min=stage.flops_min + flops)
