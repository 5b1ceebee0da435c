"""Forecast of the bytes that Avalanche's strategies keep from task to task, beside the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Final, TypeAlias

from seu_bench.models import BackboneModel, count_bytes, state_bytes
from seu_bench.training import KeptImages, StrategyContext, checked_options
from seu_bench_avalanche.methods import patterns_per_task
from seu_bench_avalanche.options import EpisodicOptions, MemoryOptions

#: Bytes after each task, at least and at most.
Kept: TypeAlias = tuple[Sequence[int], Sequence[int]]
Forecast: TypeAlias = Callable[[StrategyContext, BackboneModel], Kept]

#: Bytes of the number by which an image of a reservoir makes room for others.
WEIGHT_BYTES: Final = 4


def _every(context: StrategyContext, taken: int) -> Kept:
    always = [taken] * len(context.plan.tasks)
    return always, always


def _copies(count: int, context: StrategyContext, model: BackboneModel) -> Kept:
    """So many tensors of each parameter's shape."""
    return _every(context, count * count_bytes(model.parameters()))


def _model(context: StrategyContext, model: BackboneModel) -> Kept:
    """A copy of the model, buffers included."""
    return _every(context, state_bytes(model))


def _rwalk(context: StrategyContext, model: BackboneModel) -> Kept:
    """Anchor and scores of all parameters; importances and penalties of those that the last task has gradients for."""
    if context.plan.scenario != "task":
        return _copies(4, context, model)
    heads = [count_bytes(head.parameters()) for head in model.heads]
    taken = [4 * count_bytes(model.parameters()) - 2 * (sum(heads) - head) for head in heads]
    return taken, taken


def _images(context: StrategyContext) -> list[int]:
    """Bytes of one image of each task."""
    return [KeptImages(1, context.plan.stored_shape(task)).nbytes for task in range(len(context.plan.tasks))]


def _share(context: StrategyContext, _: BackboneModel) -> Kept:
    """As many images of each task."""
    options, tasks = checked_options(context, EpisodicOptions), context.plan.tasks
    patterns = patterns_per_task(options, len(tasks))
    taken = list(
        accumulate(min(patterns, task.num_train) * image for task, image in zip(tasks, _images(context), strict=True))
    )
    return taken, taken


def _by_task(context: StrategyContext, _: BackboneModel) -> Kept:
    """A reservoir for each task, all of one size together."""
    size, tasks, images = checked_options(context, MemoryOptions).memory, context.plan.tasks, _images(context)
    taken = []
    for seen in range(1, len(tasks) + 1):
        rooms = [size // seen + (task < size % seen) for task in range(seen)]
        kept = [min(room, task.num_train) for room, task in zip(rooms, tasks, strict=False)]
        taken.append(sum(count * (image + WEIGHT_BYTES) for count, image in zip(kept, images, strict=False)))
    return taken, taken


def _by_class(context: StrategyContext, _: BackboneModel) -> Kept:
    """A reservoir for each class, all of one size together: at most full, at least the room of a single class."""
    size, tasks, images = checked_options(context, MemoryOptions).memory, context.plan.tasks, _images(context)
    together = sum if context.plan.scenario == "class" else max  # elsewhere tasks number the same classes
    least, most = [], []
    for task, seen in enumerate(accumulate(task.num_train for task in tasks)):
        classes = together(planned.num_classes for planned in tasks[: task + 1])
        sizes = [image + WEIGHT_BYTES for image in images[: task + 1]]
        least.append(min(seen, size // classes) * min(sizes))
        most.append(min(seen, size) * max(sizes))
    return least, most


def _gdumb(context: StrategyContext, model: BackboneModel) -> Kept:
    """A reservoir for each class, and the initial weights."""
    weights = state_bytes(model)
    least, most = _by_class(context, model)
    return [taken + weights for taken in least], [taken + weights for taken in most]


def _cumulative(context: StrategyContext, _: BackboneModel) -> Kept:
    """All images so far."""
    counts = [task.num_train for task in context.plan.tasks]
    taken = list(accumulate(count * image for count, image in zip(counts, _images(context), strict=True)))
    return taken, taken


def _joint(context: StrategyContext, model: BackboneModel) -> Kept:
    """All images of the stream."""
    return _every(context, _cumulative(context, model)[0][-1])


#: By strategy; those that are not here keep the model alone.
KEPT: Final[dict[str, Forecast]] = {
    "lwf": _model,
    "si": partial(_copies, 3),
    "mas": partial(_copies, 2),
    "rwalk": _rwalk,
    "gem": _share,
    "agem": _share,
    "replay": _by_task,
    "mir": _by_class,
    "er_ace": _by_class,
    "gdumb": _gdumb,
    "cumulative": _cumulative,
    "joint": _joint,
    "from_scratch": _model,
}


def kept_bytes(name: str, context: StrategyContext, model: BackboneModel) -> Kept:
    """Bytes of all that the strategy ``name`` keeps after each task, the model included.

    Args:
        model: of the run, on any device.

    Returns:
        At least and at most: what a memory balanced by class holds depends on how many images each class has.
    """
    own = state_bytes(model)
    least, most = KEPT.get(name, partial(_copies, 0))(context, model)
    return [own + taken for taken in least], [own + taken for taken in most]
