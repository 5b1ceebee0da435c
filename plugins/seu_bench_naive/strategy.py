"""Naive fine-tuning of the AlexNet variant, the paper's SGD baseline: a fresh optimiser for each task, and the weights
of the lowest validation loss."""

from __future__ import annotations

from seu_bench.backbones import alexnet_model
from seu_bench.costing import evaluation_passes, fixed_cost, on_meta, task_macs, training_passes
from seu_bench.errors import RequestError
from seu_bench.interfaces import Cost, Setting
from seu_bench.multihead import BackboneModel
from seu_bench.seeding import RandomState, derive_seed
from seu_bench.sizes import count_parameters
from seu_bench.strategy import StagedStrategy
from seu_bench_naive import NaiveOptions


class Naive(StagedStrategy):
    """Plain fine-tuning: one training stage per task over all weights, and the task's head."""


def build_naive(setting: Setting) -> Naive:
    """The strategy of a run."""
    options = _options(setting)
    with RandomState(derive_seed(setting.seed, "model")).active():
        model = _model(setting)
    return Naive(
        model=model,
        schedule=options.applied_to(setting.protocol.training),
        seed=setting.seed,
        lr_schedule=options.lr_schedule,
        restore=options.restore,
        device=setting.device,
        eval_mb_size=setting.protocol.eval_batch_size,
        watch=setting.watch,
        evaluator=setting.evaluator,
    )


def naive_cost(setting: Setting) -> Cost:
    """Parameters, multiply-accumulates and image passes, exactly."""
    options, plan = _options(setting), setting.plan
    model = on_meta(lambda: _model(setting))
    stages = training_passes(
        plan, options.applied_to(setting.protocol.training), validate=options.restore == "best_valid"
    )
    return fixed_cost(count_parameters(model), task_macs(model, plan), stages + evaluation_passes(plan))


def _model(setting: Setting) -> BackboneModel:
    plan = setting.plan
    return alexnet_model(plan.channels, plan.height, plan.width, plan.classes)


def _options(setting: Setting) -> NaiveOptions:
    if not isinstance(setting.options, NaiveOptions):
        raise RequestError("strategy 'naive' needs its own options", where=type(setting.options).__name__)
    return setting.options
