"""Cost estimate of SEU, as a range: what a search finds and how much is reused is not known before."""

from __future__ import annotations

import torch

from seu_bench.errors import RequestError
from seu_bench.models import count_parameters
from seu_bench.search_space import Genotype, named_genotype, stem_parameters, uniform_genotype
from seu_bench.training import Cost, StageCost, StrategyContext, evaluation_passes, on_meta, task_macs, training_passes
from seu_bench.training.costing import component_passes
from seu_bench_seu.building import make_super_model, seu_options


def seu_cost(context: StrategyContext) -> Cost:
    """At most: every task brings a new unit to each layer; at least: every later task reuses the first one's.

    Without ``genotype`` the range also spans the units: pooling everywhere to 5x5 separable convolutions everywhere.
    """
    options, plan = seu_options(context), context.plan
    if options.genotype:
        least = most = named_genotype(options.genotype)
    else:
        least = uniform_genotype("max_pool_3x3", options.edges)
        most = uniform_genotype("sep_conv_5x5", options.edges)
    tasks = len(plan.tasks)
    first, macs_min = _first_task(context, least)
    total, macs = (first, macs_min) if least == most else _first_task(context, most)
    column = total - _heads(context)
    if options.stem == "shared":
        column -= stem_parameters(plan.channels, on_meta(lambda: make_super_model(context)).channels)
    params = tuple(total + column * task for task in range(tasks))
    return Cost(params, (first,) * tasks, macs, macs_min, _stages(context))


def _first_task(context: StrategyContext, genotype: Genotype) -> tuple[int, tuple[int, ...]]:
    """Parameters of the super model after one task, and multiply-accumulates of each task on its path."""
    plan = context.plan
    model = on_meta(lambda: make_super_model(context))
    with torch.device("meta"):
        model.expand(genotype, 0)
    for task in range(len(plan.tasks)):
        model.set_path(task, [0] * len(model.layers))
    return count_parameters(model), task_macs(model, plan, one_path=True)


def _heads(context: StrategyContext) -> int:
    return count_parameters(on_meta(lambda: make_super_model(context)))


def _stages(context: StrategyContext) -> tuple[StageCost, ...]:
    options, plan, protocol = seu_options(context), context.plan, context.protocol
    searcher, creator = context.searcher, context.creator
    if searcher is None or creator is None:
        raise RequestError("strategy 'seu' needs a searcher and a creator", remedy="give --searcher and --creator")
    stages: list[StageCost] = []
    for index, task in enumerate(plan.tasks):
        if not options.genotype:
            train, score = component_passes(searcher, protocol.search, task.num_train)
            stages.append(StageCost("search", index, train, score))
        if index:
            train, score = component_passes(creator, protocol.creation, task.num_train)
            stages.append(StageCost("creation", index, train, score))
            if options.statistics == "per_task":
                # At most: a path that reuses nothing takes no pass.
                stages.append(StageCost("statistics", index, 0, task.num_train))
    training = options.applied_to(protocol.training)
    stages += training_passes(plan, training, validate=options.restore == "best_valid")
    return tuple(stages + evaluation_passes(plan))
