"""Cost estimate of PathNet: parameters, memory, masks and image passes are exact, operations a range."""

from __future__ import annotations

from collections.abc import Sequence

from seu_bench.models import count_parameters, freeze, packed_bytes, state_bytes
from seu_bench.training import (
    Cost,
    StageCost,
    StrategyContext,
    checked_options,
    evaluation_passes,
    on_meta,
    priced,
    task_flops,
    task_macs,
)
from seu_bench_pathnet import PathNetOptions
from seu_bench_pathnet.evolution import CONTENDERS
from seu_bench_pathnet.model import ModularNetwork
from seu_bench_pathnet.strategy import modular_network


def pathnet_cost(context: StrategyContext) -> Cost:
    """Every module is there from the start. A path has from one module in each layer to ``active``; of its modules all
    train, or from the second task on none."""
    options, plan = checked_options(context, PathNetOptions), context.plan
    tasks = range(len(plan.tasks))
    network = on_meta(lambda: modular_network(context))
    params = (count_parameters(network),) * len(tasks)
    masks = packed_bytes(network.path_bits)
    memory = tuple(state_bytes(network) + (task + 1) * masks for task in tasks)
    bits = tuple((task + 1) * network.path_bits for task in tasks)

    _try_everywhere(network, range(options.active))
    macs, most = task_macs(network, plan, one_path=True), task_flops(network, plan, one_path=True)
    _try_everywhere(network, range(1))
    macs_min, first = task_macs(network, plan, one_path=True), task_flops(network, plan, one_path=True)
    freeze(network.layers)
    least = (*first[:1], *task_flops(network, plan, one_path=True)[1:])

    stages = [*priced(_searches(context), most, least), *evaluation_passes(plan)]
    return Cost(params, params, macs, macs_min, tuple(stages), memory, memory, bits)


def _try_everywhere(network: ModularNetwork, modules: Sequence[int]) -> None:
    """Compute every task on these modules of each layer."""
    for task in range(len(network.heads)):
        network.try_path(task, (tuple(modules),) * len(network.layers))


def _searches(context: StrategyContext) -> list[StageCost]:
    """Both paths are trained for all epochs; each epoch ends with the validation images, if they select."""
    options, plan = checked_options(context, PathNetOptions), context.plan
    epochs = CONTENDERS * options.applied_to(context.protocol.training).epochs
    select = options.restore == "best_valid"
    return [
        StageCost("search", index, epochs * task.num_train, epochs * task.num_valid if select else 0)
        for index, task in enumerate(plan.tasks)
    ]
