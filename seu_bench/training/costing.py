"""Parts of cost estimates: image passes of training and of evaluation, sizes on the meta device."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from seu_bench.config.common_options import SelectingOptions, TrainingOptions
from seu_bench.config.protocol import Schedule
from seu_bench.training.backbones import backbone_model
from seu_bench.training.interfaces import Cost, StageCost, StrategyContext, checked_options

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


ModelT = TypeVar("ModelT")


def training_passes(plan: StreamPlan, schedule: Schedule, *, validate: bool = True) -> list[StageCost]:
    """Image passes of each task's training stage.

    Args:
        plan: of the stream.
        schedule: of training; its epochs count.
        validate: whether validation images are passed after each epoch, as ``StagedStrategy`` does where ``restore``
            is ``best_valid``.

    Returns:
        One stage per task.
    """
    epochs = schedule.epochs
    return [
        StageCost("training", index, epochs * task.num_train, epochs * task.num_valid if validate else 0)
        for index, task in enumerate(plan.tasks)
    ]


def evaluation_passes(plan: StreamPlan) -> list[StageCost]:
    """Image passes of the evaluation after each task: the test images of all tasks up to it. They cost nobody anything:
    leave them out of :func:`~seu_bench.training.priced`.

    Args:
        plan: of the stream.

    Returns:
        One stage per task.
    """
    tests = [task.num_test for task in plan.tasks]
    return [StageCost("evaluation", index, 0, sum(tests[: index + 1])) for index in range(len(tests))]


def on_meta(build: Callable[[], ModelT]) -> ModelT:
    """Build a model without allocating its weights.

    Args:
        build: called on torch's meta device.

    Returns:
        What ``build`` returned.
    """
    import torch

    with torch.device("meta"):
        return build()


def fixed_cost(params: int, macs: tuple[int, ...], stages: list[StageCost], memory: int | None = None) -> Cost:
    """Cost of a strategy whose model never grows.

    Args:
        params: parameters of the model.
        macs: multiply-accumulates per image, per task, since heads may differ in width.
        stages: image passes.
        memory: bytes of all that is kept after each task; ``None``: not estimated.

    Returns:
        The cost.
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
    stages = training_passes(plan, options.applied_to(context.protocol.training), validate=validate)
    flops = task_flops(model, plan, one_path=shared)
    learning = [*priced(stages, flops), *priced(more, flops)]
    macs = task_macs(model, plan, one_path=shared)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    memory = None if kept_copies is None else state_bytes(model) + kept_copies * count_bytes(trained)
    return fixed_cost(count_parameters(model), macs, [*learning, *evaluation_passes(plan)], memory)


def task_macs(model: MultiHeadModel, plan: StreamPlan, *, one_path: bool = False) -> tuple[int, ...]:
    """Multiply-accumulates per image on each task's path, of a model on the meta device.

    Args:
        one_path: all tasks are computed by the same layers up to their heads, so that one of each number of classes
            stands for the others; counting is most of what an estimate takes.

    Returns:
        Multiply-accumulates by task.
    """
    import torch

    from seu_bench.models.sizes import count_macs

    model.eval()
    shape, meta = (plan.channels, plan.height, plan.width), torch.device("meta")
    counted = functools.cache(
        lambda task: count_macs(functools.partial(model.forward_single_task, task_label=task), shape, meta)
    )
    return tuple(map(counted, paths_begun(model, plan, one_path=one_path)))
