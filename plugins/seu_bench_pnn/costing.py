"""Cost estimate of progressive networks: exact, since a column's size depends on its place alone."""

from __future__ import annotations

from itertools import accumulate

from seu_bench.models import count_parameters, state_bytes
from seu_bench.training import (
    Cost,
    StrategyContext,
    checked_options,
    evaluation_passes,
    on_meta,
    priced,
    task_flops,
    task_macs,
    training_passes,
)
from seu_bench_pnn import PnnOptions
from seu_bench_pnn.model import ProgressiveNetwork
from seu_bench_pnn.strategy import empty_network


def pnn_cost(context: StrategyContext) -> Cost:
    """Parameters after each task are the columns so far; multiply-accumulates are those of the task's path."""
    options, plan = checked_options(context, PnnOptions), context.plan
    network = on_meta(lambda: _whole_network(context))
    params = tuple(accumulate(count_parameters(column) for column in network.columns))
    memory = tuple(accumulate(state_bytes(column) for column in network.columns))
    macs = task_macs(network, plan)
    schedule = options.applied_to(context.protocol.training)
    stages = priced(
        training_passes(plan, schedule, validate=options.restore == "best_valid"), task_flops(network, plan)
    )
    return Cost(params, params, macs, macs, (*stages, *evaluation_passes(plan)), memory, memory)


def _whole_network(context: StrategyContext) -> ProgressiveNetwork:
    network = empty_network(context)
    for task in range(len(context.plan.tasks)):
        network.expand(task)
    return network
