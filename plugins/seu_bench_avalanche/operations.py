"""Operations of Avalanche's strategies in cost estimates: exact where image passes are and heads are equally wide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from seu_bench.models import BackboneModel
from seu_bench.training import (
    PassFlops,
    StageCost,
    StrategyContext,
    checked_options,
    pass_flops,
    priced,
    task_flops,
)
from seu_bench_avalanche.methods import memory_batch
from seu_bench_avalanche.options import MirOptions, PlainOptions


@dataclass(frozen=True)
class _Parts:
    """Operations per image of whole paths by task, of the backbone, and of the heads by task; whether one head answers
    for all tasks, so that an image costs the same whichever task it is of."""

    paths: tuple[PassFlops, ...]
    backbone: PassFlops
    heads: tuple[PassFlops, ...]
    one_head: bool


def with_operations(
    name: str, context: StrategyContext, model: BackboneModel, stages: Sequence[StageCost]
) -> list[StageCost]:
    """The stages of a run with their operations.

    Args:
        model: of the run, on the meta device.
    """
    plan = context.plan
    paths, backbone = task_flops(model, plan, one_path=True), pass_flops(model.backbone, plan)
    heads = tuple(PassFlops(it.train - backbone.train, it.evaluate - backbone.evaluate) for it in paths)
    parts = _Parts(paths, backbone, heads, plan.scenario != "task")
    if (flops_of := PER_STAGE.get(name)) is not None:
        found = [replace(it, flops=(flops := flops_of(context, it, parts)), flops_min=flops) for it in stages]
    elif name in ALONE or parts.one_head:
        found = priced(stages, paths)
    else:
        # Images of earlier tasks take those tasks' heads; how many of each there are is not known.
        seen = [sorted(paths[: task + 1], key=lambda it: it.train) for task in range(len(paths))]
        found = priced(stages, [some[-1] for some in seen], [some[0] for some in seen])
    if name in AT_MOST:
        new = [_epochs(context) * task.num_train * path.train for task, path in zip(plan.tasks, paths, strict=True)]
        found = [replace(it, flops_min=min(new[it.task], it.flops or 0)) for it in found]
    return found


def _epochs(context: StrategyContext) -> int:
    return checked_options(context, PlainOptions).applied_to(context.protocol.training).epochs


def _lwf(_: StrategyContext, stage: StageCost, parts: _Parts) -> int:
    """Beside the image itself the teacher and the student compute the heads of all earlier tasks, the student its
    newest in vain as well; or each its one head."""
    task, backbone = stage.task, parts.backbone
    own, earlier = parts.paths[task].train, parts.heads[:task]
    if not task:
        return stage.train * own
    if parts.one_head:
        return stage.train // 3 * (2 * own + backbone.evaluate + parts.heads[task - 1].evaluate)
    student = backbone.train + sum(head.train for head in earlier) + parts.heads[task].evaluate
    teacher = backbone.evaluate + sum(head.evaluate for head in earlier)
    return stage.train // 3 * (own + student + teacher)


def _mir(context: StrategyContext, stage: StageCost, parts: _Parts) -> int:
    """Two models look at the sample, of which a batch is chosen; and the new images' gradient is computed twice."""
    options = checked_options(context, MirOptions)
    path, task = parts.paths[stage.task], context.plan.tasks[stage.task]
    new = _epochs(context) * task.num_train
    batch = memory_batch(context, options)
    sample = min(max(options.subsample, batch), options.memory)
    replayed = (stage.train - new) // (2 * sample + batch)
    again = new * (path.train - path.evaluate) if stage.task else 0
    return new * path.train + again + replayed * (2 * sample * path.evaluate + batch * path.train)


def _cwr(_: StrategyContext, stage: StageCost, parts: _Parts) -> int:
    """After the first task the backbone is frozen, and of a head the weights have a gradient."""
    path, head = parts.paths[stage.task], parts.heads[stage.task]
    return stage.train * (path.evaluate + head.evaluate if stage.task else path.train)


def _all_so_far(context: StrategyContext, stage: StageCost, parts: _Parts) -> int:
    """Every task up to the stage's own, each on its path."""
    images = [task.num_train for task in context.plan.tasks[: stage.task + 1]]
    paths = [parts.paths[stage.task]] * len(images) if parts.one_head else parts.paths
    return _epochs(context) * sum(count * path.train for count, path in zip(images, paths, strict=False))


#: Strategies whose passes are not all the same.
PER_STAGE: Final[dict[str, Callable[[StrategyContext, StageCost, _Parts], int]]] = {
    "lwf": _lwf,
    "mir": _mir,
    "cwr": _cwr,
    "joint": _all_so_far,
    "cumulative": _all_so_far,
}
#: Strategies that pass images of the present task alone.
ALONE: Final = ("si", "mas", "rwalk", "from_scratch")
#: Strategies whose image passes assume a full memory: at least, nothing is replayed.
AT_MOST: Final = ("agem", "mir", "replay")
