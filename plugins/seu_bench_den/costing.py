"""Cost estimate of DEN, as a range: whether a task adds and splits units is not known before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from seu_bench.models import GrowingNetwork, count_parameters, state_bytes
from seu_bench.training import (
    Cost,
    PassFlops,
    StageCost,
    StrategyContext,
    checked_options,
    evaluation_passes,
    on_meta,
    priced,
    task_flops,
    task_macs,
)
from seu_bench_den import DenOptions
from seu_bench_den.networks import empty_network, first_units


def den_cost(context: StrategyContext) -> Cost:
    """At least: every task makes do with the first one's units. At most: every task adds all units that it may, and
    splits all that it may."""
    plan = context.plan
    least = on_meta(lambda: _whole_network(context, large=False))
    most = on_meta(lambda: _whole_network(context, large=True))
    stages = (*_stages(context, least, most), *evaluation_passes(plan))
    return Cost(
        params_total=_sizes(most, count_parameters),
        params_total_min=_sizes(least, count_parameters),
        macs=task_macs(most, plan),
        macs_min=task_macs(least, plan),
        stages=stages,
        memory_bytes=_sizes(most, state_bytes),
        memory_bytes_min=_sizes(least, state_bytes),
    )


def _whole_network(context: StrategyContext, *, large: bool) -> GrowingNetwork:
    options, network = checked_options(context, DenOptions), empty_network(context)
    network.grow(first_units(network))
    for task in range(1, len(context.plan.tasks)):
        more = [options.expand_by + min(options.split_limit, units) for units in network.widths(task - 1)]
        network.grow(more if large else [0] * len(more))
    return network


def _sizes(network: GrowingNetwork, count: Callable[..., int]) -> tuple[int, ...]:
    """What there is after each task: its path, and the heads before it."""
    heads = [count(network.head(task)) for task in range(len(network.heads))]
    return tuple(count(network.task_module(task)) + sum(heads[:task]) for task in range(len(heads)))


def _stages(context: StrategyContext, least: GrowingNetwork, most: GrowingNetwork) -> list[StageCost]:
    options, plan = checked_options(context, DenOptions), context.plan
    epochs = options.applied_to(context.protocol.training).epochs
    selection = epochs if options.selection_epochs is None else options.selection_epochs
    valid = options.restore == "best_valid"
    (all_most, all_least), (head_most, head_least) = (
        [_flops(network, context, heads_only=heads_only) for network in (most, least)] for heads_only in (False, True)
    )
    costs: list[StageCost] = []
    for index, task in enumerate(plan.tasks):
        trained = (epochs * task.num_train, epochs * task.num_valid if valid else 0)
        training = StageCost("training", index, *trained)
        if not index:
            costs += priced([training], all_most, all_least)
            continue
        costs += priced([StageCost("selection", index, selection * task.num_train, 0)], head_most, head_least)
        # The sub-graph may be no more than the head.
        costs += priced([training], all_most, head_least)
        perhaps = [StageCost(name, index, *trained) for name in ("expansion", "splitting")]
        costs += [replace(cost, flops_min=0) for cost in priced(perhaps, all_most)]
        costs += priced([StageCost("drift", index, *trained)], all_most, all_least)
    return costs


def _flops(network: GrowingNetwork, context: StrategyContext, *, heads_only: bool) -> tuple[PassFlops, ...]:
    network.layers.requires_grad_(not heads_only)
    return task_flops(network, context.plan)
