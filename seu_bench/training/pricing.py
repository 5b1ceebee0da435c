"""Operations of cost estimates: what an image takes that a network trains on or only evaluates, times the images."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from seu_bench.training.interfaces import StageCost

if TYPE_CHECKING:
    from seu_bench.data.planning import StreamPlan
    from seu_bench.models.multihead import MultiHeadModel


@dataclass(frozen=True)
class PassFlops:
    """Operations per image, as :class:`~seu_bench.models.flops.FlopCounter` counts them.

    Attributes:
        train: forward and backward.
        evaluate: forward alone.
    """

    train: int
    evaluate: int


def pass_flops(forward: Callable[[Any], Any], plan: StreamPlan) -> PassFlops:
    """Count what a network on the meta device takes per image.

    Args:
        forward: images of the stream -> any output; gradients are those of what requires them.
        plan: of the stream.

    Returns:
        The operations.
    """
    import torch

    from seu_bench.models.flops import FlopCounter, counted_as

    # Two images: BatchNorm cannot be trained on one.
    images = torch.zeros((2, plan.channels, plan.height, plan.width), device="meta")
    with counted_as(lambda: 0):
        with torch.no_grad(), FlopCounter() as evaluating:
            forward(images)
        with torch.enable_grad(), FlopCounter() as training:
            output = forward(images).sum()
            if output.requires_grad:
                output.backward()
    return PassFlops(training.flops // 2, evaluating.flops // 2)


def task_flops(model: MultiHeadModel, plan: StreamPlan, *, one_path: bool = False) -> tuple[PassFlops, ...]:
    """Operations per image on each task's path, of a model on the meta device.

    Args:
        model: all of the path trains that requires gradients.
        plan: of the stream.
        one_path: as of :func:`~seu_bench.training.costing.task_macs`.

    Returns:
        Operations by task.

    Example:
        ``stages = priced(training_passes(plan, schedule), task_flops(model, plan))``
    """
    model.train()
    counted = functools.cache(
        lambda task: pass_flops(functools.partial(model.forward_single_task, task_label=task), plan)
    )
    return tuple(map(counted, paths_begun(model, plan, one_path=one_path)))


def paths_begun(model: MultiHeadModel, plan: StreamPlan, *, one_path: bool) -> Iterator[int]:
    """Begin each task of a stream in turn.

    Args:
        model: a head of it may grow with each task.
        plan: of the stream.
        one_path: as of :func:`~seu_bench.training.costing.task_macs`.

    Yields:
        The task whose path costs what that of the task just begun does.
    """
    heads = plan.classes_per_task
    for task, width in enumerate(heads):
        model.begin_task(task)
        yield heads.index(width) if one_path and plan.scenario != "class" else task


def priced(
    stages: Iterable[StageCost], most: Sequence[PassFlops], least: Sequence[PassFlops] | None = None
) -> list[StageCost]:
    """Stages with the operations of their image passes.

    Args:
        stages: each passes images on its task's path.
        most: operations per image, by task.
        least: the same at least; ``None``: ``most`` is exact.

    Returns:
        The stages.
    """

    def flops(stage: StageCost, costs: Sequence[PassFlops]) -> int:
        return stage.train * costs[stage.task].train + stage.evaluate * costs[stage.task].evaluate

    return [replace(it, flops=flops(it, most), flops_min=flops(it, least or most)) for it in stages]
