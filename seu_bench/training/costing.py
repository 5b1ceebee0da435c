"""Parts of cost estimates: image passes of training and of evaluation, sizes and operations on the meta device.

``one_path``: all tasks are computed by the same layers up to their heads, so that one of each number of classes stands
for the others; counting is most of what an estimate takes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from seu_bench.config.common_options import SelectingOptions, TrainingOptions
from seu_bench.config.protocol import Schedule
from seu_bench.training.backbones import backbone_model
from seu_bench.training.interfaces import Cost, StageCost, StrategyContext, checked_options

if TYPE_CHECKING:
    from seu_bench.data.planning import StreamPlan
    from seu_bench.models.multihead import MultiHeadModel

T = TypeVar("T")


@dataclass(frozen=True)
class PassFlops:
    """Operations per image, as :class:`~seu_bench.models.flops.FlopCounter` counts them.

    Attributes:
        train: forward and backward.
        evaluate: forward alone.
    """

    train: int
    evaluate: int


def on_meta(build: Callable[[], T]) -> T:
    """Build a model on torch's meta device, without allocating its weights."""
    import torch

    with torch.device("meta"):
        return build()


def pass_flops(forward: Callable[[Any], Any], plan: StreamPlan) -> PassFlops:
    """Count what a network on the meta device takes per image.

    Args:
        forward: images of the stream -> any output; gradients are those of what requires them.
        plan: of the stream.
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
    """Operations per image on each task's path, of a model on the meta device; what requires gradients trains.

    Example:
        ``stages = priced(training_passes(plan, schedule), task_flops(model, plan))``
    """
    model.train()
    return _by_task(lambda forward: pass_flops(forward, plan), model, plan, one_path=one_path)


def task_macs(model: MultiHeadModel, plan: StreamPlan, *, one_path: bool = False) -> tuple[int, ...]:
    """Multiply-accumulates per image on each task's path, of a model on the meta device."""
    import torch

    from seu_bench.models.sizes import count_macs

    model.eval()
    shape, meta = (plan.channels, plan.height, plan.width), torch.device("meta")
    return _by_task(lambda forward: count_macs(forward, shape, meta), model, plan, one_path=one_path)


def _by_task(
    count: Callable[[Callable[[Any], Any]], T], model: MultiHeadModel, plan: StreamPlan, *, one_path: bool
) -> tuple[T, ...]:
    """What counting each task's path gives, as its task has begun: a head of the model may grow with each."""
    heads, found = plan.classes_per_task, list[T]()
    known: dict[int, T] = {}
    for task, width in enumerate(heads):
        model.begin_task(task)
        path = heads.index(width) if one_path and plan.scenario != "class" else task
        if path not in known:
            known[path] = count(functools.partial(model.forward_single_task, task_label=path))
        found.append(known[path])
    return tuple(found)


def priced(
    stages: Iterable[StageCost], most: Sequence[PassFlops], least: Sequence[PassFlops] | None = None
) -> list[StageCost]:
    """Stages with the operations of their image passes.

    Args:
        stages: each passes images on its task's path.
        most: operations per image, by task.
        least: the same at least; ``None``: ``most`` is exact.
    """

    def flops(stage: StageCost, costs: Sequence[PassFlops]) -> int:
        return stage.train * costs[stage.task].train + stage.evaluate * costs[stage.task].evaluate

    return [replace(it, flops=flops(it, most), flops_min=flops(it, least or most)) for it in stages]


def training_passes(plan: StreamPlan, schedule: Schedule, *, validate: bool = True) -> list[StageCost]:
    """Image passes of each task's training stage.

    Args:
        plan: of the stream.
        schedule: of training; its epochs count.
        validate: whether validation images are passed after each epoch, as ``StagedStrategy`` does where ``restore``
            is ``best_valid``.
    """
    epochs = schedule.epochs
    return [
        StageCost("training", index, epochs * task.num_train, epochs * task.num_valid if validate else 0)
        for index, task in enumerate(plan.tasks)
    ]


def evaluation_passes(plan: StreamPlan) -> list[StageCost]:
    """Image passes of the evaluation after each task: test images of all tasks up to it. They are not priced."""
    tests = [task.num_test for task in plan.tasks]
    return [StageCost("evaluation", index, 0, sum(tests[: index + 1])) for index in range(len(tests))]


def fixed_cost(params: int, macs: tuple[int, ...], stages: list[StageCost], memory: int | None = None) -> Cost:
    """Cost of a strategy whose model never grows.

    Args:
        params: parameters of the model.
        macs: multiply-accumulates per image, per task, since heads may differ in width.
        stages: image passes.
        memory: bytes of all that is kept after each task; ``None``: not estimated.
    """
    constant = (params,) * len(macs)
    kept = () if memory is None else (memory,) * len(macs)
    return Cost(constant, constant, macs, macs, tuple(stages), kept, kept)


def fixed_size_cost(
    context: StrategyContext,
    more: Sequence[StageCost] = (),
    *,
    kept_copies: int | None = None,
    build: Callable[[], MultiHeadModel] | None = None,
) -> Cost:
    """Exact cost of a strategy that trains a network of fixed size, with a head per task, in one stage per task.

    Args:
        context: of the run.
        more: image passes besides those of training and evaluation: of further stages, or of the same stage
            (``training``) where a batch passes more than its own images. They cost what the task's own images cost.
        kept_copies: tensors of the shape of each parameter that trains, which are kept after a task beside the model,
            such as importances and anchors; 0: nothing but the model is. ``None``: memory is not estimated.
        build: makes the network; called on torch's meta device, where weights take no memory. ``None``: the backbone
            that was chosen.

    Returns:
        The cost.

    Raises:
        RequestError: the options are no :class:`~seu_bench.config.TrainingOptions`; without ``build``, no
            :class:`~seu_bench.config.BackboneOptions`.

    Example:
        ``fixed_size_cost(context, kept_copies=0, build=lambda: MyNetwork(context.plan))``
    """
    from seu_bench.models.sizes import count_bytes, count_parameters, state_bytes

    options, plan = checked_options(context, TrainingOptions), context.plan
    shared = build is None  # a backbone computes all tasks by the same layers; of another network nothing is known
    model: MultiHeadModel = on_meta(build or (lambda: backbone_model(context)))
    validate = isinstance(options, SelectingOptions) and options.restore == "best_valid"
    flops = task_flops(model, plan, one_path=shared)
    learning = training_passes(plan, options.applied_to(context.protocol.training), validate=validate)
    macs = task_macs(model, plan, one_path=shared)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    memory = None if kept_copies is None else state_bytes(model) + kept_copies * count_bytes(trained)
    stages = [*priced([*learning, *more], flops), *evaluation_passes(plan)]
    return fixed_cost(count_parameters(model), macs, stages, memory)
