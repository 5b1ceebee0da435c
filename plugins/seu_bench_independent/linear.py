"""A linear classifier per task: multinomial logistic regression on the pixels, the least that a network has to beat."""

from __future__ import annotations

from torch import nn

from seu_bench.models import BackboneModel, count_parameters, state_bytes
from seu_bench.training import (
    Cost,
    StagedStrategy,
    StrategyContext,
    checked_options,
    evaluation_passes,
    fixed_cost,
    on_meta,
    priced,
    task_flops,
    task_macs,
    training_passes,
)
from seu_bench.utils import RandomState, derive_seed
from seu_bench_independent import LinearOptions


class Linear(StagedStrategy):
    """One training stage per task, over the weights of its classifier alone."""


def linear_model(context: StrategyContext) -> BackboneModel:
    """A linear head for each task on the pixels, its weights drawn from the run's seed."""
    plan = context.plan
    with RandomState(derive_seed(context.seed, "model")).active():
        return BackboneModel(nn.Flatten(), plan.channels * plan.height * plan.width, plan.classes_per_task)


def build_linear(context: StrategyContext) -> Linear:
    """The strategy of a run."""
    return Linear.of(context, model=linear_model(context))


def linear_cost(context: StrategyContext) -> Cost:
    """Exact: all heads are there from the start, and a task has one training stage."""
    options, plan = checked_options(context, LinearOptions), context.plan
    model = on_meta(lambda: linear_model(context))
    schedule = options.applied_to(context.protocol.training)
    passes = training_passes(plan, schedule, validate=options.restore == "best_valid")
    stages = [*priced(passes, task_flops(model, plan, one_path=True)), *evaluation_passes(plan)]
    return fixed_cost(count_parameters(model), task_macs(model, plan, one_path=True), stages, state_bytes(model))
