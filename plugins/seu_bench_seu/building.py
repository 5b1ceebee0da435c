"""From a run's context to the SEU strategy and its empty super model."""

from __future__ import annotations

from seu_bench.errors import RequestError
from seu_bench.training import Stage, StrategyContext, checked_options
from seu_bench.utils import RandomState, derive_seed
from seu_bench_kit import CreationTask, Genotype, SearchSpace, SearchTask, guarded_stage, named_genotype
from seu_bench_seu.options import SeuOptions
from seu_bench_seu.strategy import Seu
from seu_bench_seu.super_model import SuperModel


def seu_options(context: StrategyContext) -> SeuOptions:
    """The context's options as SEU's."""
    return checked_options(context, SeuOptions)


def make_super_model(context: StrategyContext) -> SuperModel:
    """An empty super model for the stream."""
    options, size, plan = seu_options(context), context.protocol.model, context.plan
    cells = options.cells or (options.code_cells if options.preset == "code" else None) or size.cells
    channels = options.channels or max(1, round(options.width * size.channels))
    space = SearchSpace(options.edges, options.cell_types, options.factorized_reduce_norm)
    return SuperModel(plan.channels, plan.classes_per_task, cells, channels, space, options.stem)


def build_seu(context: StrategyContext) -> Seu:
    """The strategy of a run.

    Raises:
        RequestError: no searcher or no creator was chosen.
    """
    options, protocol = seu_options(context), context.protocol
    searcher, creator = context.searcher, context.creator
    if searcher is None or creator is None:
        raise RequestError("strategy 'seu' needs a searcher and a creator", remedy="give --searcher and --creator")
    training = options.applied_to(protocol.training)
    search_schedule, creation_schedule = protocol.search, protocol.creation
    if options.tie_weight_decay:
        decay = {"weight_decay": training.weight_decay}
        search_schedule = search_schedule.model_copy(update=decay)
        creation_schedule = creation_schedule.model_copy(update=decay)

    def search(task: SearchTask) -> Stage[Genotype]:
        return guarded_stage(searcher, task, task.space.fault)

    def create(task: CreationTask) -> Stage[tuple[int, ...]]:
        before = model.frozen_state()
        return guarded_stage(creator, task, lambda path: model.path_fault(path) or model.frozen_fault(before))

    with RandomState(derive_seed(context.seed, "model")).active():
        model = make_super_model(context)
    return Seu.of(
        context,
        model=model,
        searcher=search,
        creator=create,
        search_schedule=search_schedule,
        creation_schedule=creation_schedule,
        genotype=named_genotype(options.genotype) if options.genotype else None,
        warm_start=options.warm_start,
        statistics=options.statistics,
        adaptation=options.adaptation,
    )
