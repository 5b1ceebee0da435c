"""Cost estimate of SEU, as a range: what a search finds and how much is reused is not known before."""

from __future__ import annotations

import torch

from seu_bench.errors import RequestError
from seu_bench.models import count_parameters, state_bytes
from seu_bench.training import Cost, StageCost, StrategyContext, evaluation_passes, on_meta, task_macs, training_passes
from seu_bench_kit import Genotype, named_genotype, uniform_genotype
from seu_bench_kit.components import component_passes
from seu_bench_kit.search_space import stem_parameters
from seu_bench_seu.building import make_super_model, seu_options
from seu_bench_seu.statistics import UnitNorms, UnitStatistics
from seu_bench_seu.super_model import SuperModel


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
    small, macs_min = _first_task(context, least)
    large, macs = (small, macs_min) if least == most else _first_task(context, most)
    empty = on_meta(lambda: make_super_model(context))
    # What a task brings at most: a column, which may lack the stem, and then perhaps has statistics for it.
    column, column_bytes = (count(large) - count(empty) for count in (count_parameters, state_bytes))
    # What it has of its own where it reuses everything.
    own = [module for layer in range(len(small.layers)) for module in _own(context, small, layer)]
    if options.stem == "shared":
        stem = _own(context, large, 0)
        column += count_parameters(*stem) - stem_parameters(plan.channels, large.channels)
        column_bytes += state_bytes(*stem) - state_bytes(large.unit(0, 0))
    first, first_bytes = count_parameters(small), state_bytes(small)
    return Cost(
        tuple(count_parameters(large) + column * task for task in range(tasks)),
        tuple(first + count_parameters(*own) * task for task in range(tasks)),
        macs,
        macs_min,
        _stages(context),
        tuple(state_bytes(large) + column_bytes * task for task in range(tasks)),
        tuple(first_bytes + state_bytes(*own) * task for task in range(tasks)),
    )


def _first_task(context: StrategyContext, genotype: Genotype) -> tuple[SuperModel, tuple[int, ...]]:
    """The super model after one task, and multiply-accumulates of each task on its path."""
    plan = context.plan
    model = on_meta(lambda: make_super_model(context))
    with torch.device("meta"):
        model.expand(genotype, 0)
    for task in range(len(plan.tasks)):
        model.set_path(task, [0] * len(model.layers))
    return model, task_macs(model, plan, one_path=True)


def _own(context: StrategyContext, model: SuperModel, layer: int) -> list[UnitStatistics]:
    """What a task has of its own where it reuses the first unit of a layer."""
    options = seu_options(context)
    kinds = [UnitStatistics] * (options.statistics == "per_task") or [UnitNorms] * (options.adaptation == "norms")
    return [kind(model.unit(layer, 0)) for kind in kinds]


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
