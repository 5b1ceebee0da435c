"""Cost estimates of Avalanche's strategies: exact, but passes with a memory assume a full one and full batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final

from seu_bench.config import Schedule
from seu_bench.data import batch_bounds
from seu_bench.models import count_parameters
from seu_bench.training import (
    Cost,
    StageCost,
    StrategyContext,
    backbone_model,
    checked_options,
    evaluation_passes,
    fixed_cost,
    on_meta,
    task_macs,
)
from seu_bench_avalanche.methods import memory_batch, patterns_per_task
from seu_bench_avalanche.operations import with_operations
from seu_bench_avalanche.options import (
    AgemOptions,
    ErAceOptions,
    GemOptions,
    MemoryOptions,
    MirOptions,
    PlainOptions,
    ReplayOptions,
)
from seu_bench_avalanche.remembering import kept_bytes


def avalanche_cost(name: str, context: StrategyContext) -> Cost:
    """The cost of a run."""
    plan = context.plan
    model = on_meta(lambda: backbone_model(context, may_be_frozen=False))
    learning = with_operations(name, context, model, STAGES.get(name, _plain)(context))
    stages = [*learning, *evaluation_passes(plan)]
    least, most = kept_bytes(name, context, model)
    cost = fixed_cost(count_parameters(model), task_macs(model, plan, one_path=True), stages)
    return replace(cost, memory_bytes=tuple(most), memory_bytes_min=tuple(least))


def _schedule(context: StrategyContext) -> Schedule:
    return checked_options(context, PlainOptions).applied_to(context.protocol.training)


def _training(
    context: StrategyContext,
    images: Sequence[int],
    *,
    per_image: Sequence[int] | None = None,
    per_batch: Sequence[int] | None = None,
) -> list[StageCost]:
    """Passes of training; ``per_image`` and ``per_batch`` are additional ones, per task."""
    schedule = _schedule(context)
    stages = []
    for task, count in enumerate(images):
        batches = len(batch_bounds(count, schedule.batch_size, join=True))
        more = count * (per_image[task] if per_image else 0) + batches * (per_batch[task] if per_batch else 0)
        stages.append(StageCost("training", task, schedule.epochs * (count + more), 0))
    return stages


def _images(context: StrategyContext) -> list[int]:
    return [task.num_train for task in context.plan.tasks]


def _later(context: StrategyContext, passes: int) -> list[int]:
    return [passes if task else 0 for task in range(len(context.plan.tasks))]


def _plain(context: StrategyContext) -> list[StageCost]:
    return _training(context, _images(context))


def _lwf(context: StrategyContext) -> list[StageCost]:
    # The teacher sees each image, and the student once more for its old heads.
    return _training(context, _images(context), per_image=_later(context, 2))


def _mas(context: StrategyContext) -> list[StageCost]:
    images = _images(context)
    return [*_plain(context), *(StageCost("consolidation", task, count, 0) for task, count in enumerate(images))]


def _rwalk(context: StrategyContext) -> list[StageCost]:
    return _training(context, _images(context), per_image=[1] * len(context.plan.tasks))


def _gem(context: StrategyContext) -> list[StageCost]:
    images = _images(context)
    patterns = patterns_per_task(checked_options(context, GemOptions), len(images))
    kept = [min(patterns, count) for count in images]
    return _training(context, images, per_batch=[sum(kept[:task]) for task in range(len(images))])


def _agem(context: StrategyContext) -> list[StageCost]:
    images, sample = _images(context), checked_options(context, AgemOptions).sample_size
    return _training(context, images, per_batch=[sample // task * task if task else 0 for task in range(len(images))])


def _replay(context: StrategyContext) -> list[StageCost]:
    options = checked_options(context, ReplayOptions)
    batch = min(memory_batch(context, options), options.memory)
    return _training(context, _images(context), per_batch=_later(context, batch))


def _mir(context: StrategyContext) -> list[StageCost]:
    options = checked_options(context, MirOptions)
    batch = memory_batch(context, options)
    sample = min(max(options.subsample, batch), options.memory)
    # The model and its look-ahead see the sample; then the chosen images are trained on.
    return _training(context, _images(context), per_batch=_later(context, 2 * sample + batch))


def _er_ace(context: StrategyContext) -> list[StageCost]:
    batch = checked_options(context, ErAceOptions).batch_size_mem
    return _training(context, _images(context), per_batch=_later(context, batch))


def _gdumb(context: StrategyContext) -> list[StageCost]:
    size = checked_options(context, MemoryOptions).memory
    return _training(context, [min(size, seen) for seen in accumulate(_images(context))])


def _cumulative(context: StrategyContext) -> list[StageCost]:
    return _training(context, list(accumulate(_images(context))))


def _joint(context: StrategyContext) -> list[StageCost]:
    last = len(context.plan.tasks) - 1
    return [StageCost("training", last, _schedule(context).epochs * sum(_images(context)), 0)]


#: Stages of those that do more than train on each task's images.
STAGES: Final[dict[str, Callable[[StrategyContext], list[StageCost]]]] = {
    "lwf": _lwf,
    "mas": _mas,
    "rwalk": _rwalk,
    "gem": _gem,
    "agem": _agem,
    "replay": _replay,
    "mir": _mir,
    "er_ace": _er_ace,
    "gdumb": _gdumb,
    "cumulative": _cumulative,
    "joint": _joint,
}
