"""What one of Avalanche's strategies will cost. Sizes are exact. So are image passes where no memory is involved; with
one they are those of a memory that is full and of batches that all have their full number of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final

from seu_bench.backbones import backbone_model
from seu_bench.costing import evaluation_passes, fixed_cost, on_meta, task_macs
from seu_bench.interfaces import Cost, Setting, StageCost, checked_options
from seu_bench.loading import batch_bounds
from seu_bench.sizes import count_parameters
from seu_bench.spec import Schedule
from seu_bench_avalanche.methods import memory_batch, patterns_per_task
from seu_bench_avalanche.options import (
    AgemOptions,
    ErAceOptions,
    GemOptions,
    MemoryOptions,
    MirOptions,
    PlainOptions,
    ReplayOptions,
)


def avalanche_cost(name: str, setting: Setting) -> Cost:
    """The cost of a run."""
    plan = setting.plan
    model = on_meta(lambda: backbone_model(setting))
    stages = [*STAGES.get(name, _plain)(setting), *evaluation_passes(plan)]
    return fixed_cost(count_parameters(model), task_macs(model, plan, one_path=True), stages)


def _schedule(setting: Setting) -> Schedule:
    return checked_options(setting, PlainOptions).applied_to(setting.protocol.training)


def _training(
    setting: Setting,
    images: Sequence[int],
    *,
    per_image: Sequence[int] | None = None,
    per_batch: Sequence[int] | None = None,
) -> list[StageCost]:
    """Training on so many ``images`` per task.

    Args:
        per_image, per_batch: passes beside these for each image and for each batch, per task.
    """
    schedule = _schedule(setting)
    stages = []
    for task, count in enumerate(images):
        batches = len(batch_bounds(count, schedule.batch_size, join=True))
        more = count * (per_image[task] if per_image else 0) + batches * (per_batch[task] if per_batch else 0)
        stages.append(StageCost("training", task, schedule.epochs * (count + more), 0))
    return stages


def _images(setting: Setting) -> list[int]:
    return [task.train for task in setting.plan.tasks]


def _later(setting: Setting, passes: int) -> list[int]:
    """So many passes for each task but the first."""
    return [passes if task else 0 for task in range(len(setting.plan.tasks))]


def _plain(setting: Setting) -> list[StageCost]:
    return _training(setting, _images(setting))


def _lwf(setting: Setting) -> list[StageCost]:
    # The teacher sees each image, and the student once more for its old heads.
    return _training(setting, _images(setting), per_image=_later(setting, 2))


def _mas(setting: Setting) -> list[StageCost]:
    images = _images(setting)
    return [*_plain(setting), *(StageCost("consolidation", task, count, 0) for task, count in enumerate(images))]


def _rwalk(setting: Setting) -> list[StageCost]:
    return _training(setting, _images(setting), per_image=[1] * len(setting.plan.tasks))


def _gem(setting: Setting) -> list[StageCost]:
    images = _images(setting)
    patterns = patterns_per_task(checked_options(setting, GemOptions), len(images))
    kept = [min(patterns, count) for count in images]
    return _training(setting, images, per_batch=[sum(kept[:task]) for task in range(len(images))])


def _agem(setting: Setting) -> list[StageCost]:
    images, sample = _images(setting), checked_options(setting, AgemOptions).sample_size
    return _training(setting, images, per_batch=[sample // task * task if task else 0 for task in range(len(images))])


def _replay(setting: Setting) -> list[StageCost]:
    options = checked_options(setting, ReplayOptions)
    batch = min(memory_batch(setting, options), options.mem_size)
    return _training(setting, _images(setting), per_batch=_later(setting, batch))


def _mir(setting: Setting) -> list[StageCost]:
    options = checked_options(setting, MirOptions)
    batch = memory_batch(setting, options)
    sample = min(max(options.subsample, batch), options.mem_size)
    # The model and its look-ahead see the sample; then the chosen images are trained on.
    return _training(setting, _images(setting), per_batch=_later(setting, 2 * sample + batch))


def _er_ace(setting: Setting) -> list[StageCost]:
    batch = checked_options(setting, ErAceOptions).batch_size_mem
    return _training(setting, _images(setting), per_batch=_later(setting, batch))


def _gdumb(setting: Setting) -> list[StageCost]:
    size = checked_options(setting, MemoryOptions).mem_size
    return _training(setting, [min(size, seen) for seen in accumulate(_images(setting))])


def _cumulative(setting: Setting) -> list[StageCost]:
    return _training(setting, list(accumulate(_images(setting))))


def _joint(setting: Setting) -> list[StageCost]:
    last = len(setting.plan.tasks) - 1
    return [StageCost("training", last, _schedule(setting).epochs * sum(_images(setting)), 0)]


#: Stages of those that do more than train on each task's images.
STAGES: Final[dict[str, Callable[[Setting], list[StageCost]]]] = {
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
