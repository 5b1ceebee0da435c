"""Cost by rehearsal: the method itself learns the whole stream on stand-ins, and what it does is counted.

All images are one of noise. The backbone has its own weights, so that what is kept of them has its size, and does not
compute: it says what computing would have taken. Loops of turns that cost the same are abridged, and nothing is
learned, as the learning rate is 0. A method whose passes hang on what it learns is forecast as it behaves here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

import torch
from torch import Tensor, nn

from seu_bench.config.common_options import BackboneOptions
from seu_bench.config.run import ComputeConfig
from seu_bench.data.dataset import InputShape
from seu_bench.data.images import TaskImages
from seu_bench.data.planning import StreamPlan
from seu_bench.data.streams import TaskSplits, TaskStream
from seu_bench.models.flops import FlopCounter, active_counter, counted_as
from seu_bench.models.modes import modes_kept
from seu_bench.models.sizes import count_macs, count_parameters
from seu_bench.training.backbones import build_backbone
from seu_bench.training.interfaces import BackboneFactory, Cost, StageCost, StrategyContext
from seu_bench.training.monitoring import memory_of
from seu_bench.training.stage import StageProgress
from seu_bench.utils.rehearsing import active_rehearsal, rehearsal_mode
from seu_bench.utils.seeding import RandomState

#: Factor of what stands for a feature: small, so that nothing grows beyond bounds.
_TINY: Final = 1e-3


T = TypeVar("T")


@dataclass(frozen=True)
class PassFlops:
    """Operations per image, forward and backward (``train``) and forward alone (``evaluate``)."""

    train: int
    evaluate: int


def on_meta(build: Callable[[], T]) -> T:
    """Build a model on torch's meta device, without allocating its weights."""
    with torch.device("meta"):
        return build()


def pass_flops(forward: Callable[[Any], Any], plan: StreamPlan) -> PassFlops:
    """Count what ``forward`` takes per image of the stream on the meta device; gradients are those of what requires
    them."""
    # Two images: BatchNorm cannot be trained on one.
    images = plan.input.zeros(2, "meta")
    with counted_as(lambda: 0):
        with torch.no_grad(), FlopCounter() as evaluating:
            forward(images)
        with torch.enable_grad(), FlopCounter() as training:
            output = forward(images).sum()
            if output.requires_grad:
                output.backward()
    return PassFlops(training.flops // 2, evaluating.flops // 2)


def evaluation_passes(plan: StreamPlan) -> list[StageCost]:
    """Return the image passes of the evaluation after each task: test images of all tasks up to it. Where tasks share a
    head, it also answered for the task before it was learned, and before any was."""
    tests, ahead = [task.num_test for task in plan.tasks], 2 if plan.scenario == "domain" else 0
    sums = [sum(tests[: index + 1]) + bool(index) * ahead * count for index, count in enumerate(tests)]
    return [StageCost("evaluation", index, 0, images) for index, images in enumerate(sums)]


def rehearse(build: Callable[[StrategyContext], Any], context: StrategyContext) -> Cost:
    """Forecast the cost of a run: exact where nothing hangs on what is learned, and classes have as many images as each
    other. ``build`` makes the strategy, given a context."""
    plan, stages = context.plan, list[StageCost]()

    def note(progress: StageProgress) -> None:
        rehearsal = active_rehearsal()
        if progress.done and rehearsal is not None:
            passes, trained, flops = progress.image_passes, rehearsal.trained, progress.flops
            stages.append(StageCost(progress.stage, progress.task, trained, passes - trained, flops, flops))
            rehearsal.trained = 0

    acting = replace(
        context,
        device="cpu",
        backbone=_backbone(context),
        compute=ComputeConfig(feature_cache=0),
        on_progress=note,
        evaluator=None,
        restores=True,
    )
    sizes: list[tuple[int, int, int, int]] = []
    with RandomState(0).active():
        strategy = build(acting)
        still = {"learning_rate": 0.0, "min_learning_rate": 0.0}
        strategy.whole_schedule = strategy.whole_schedule.model_copy(update=still)
        streams = stand_ins(plan, 1).avalanche().streams
        whole = getattr(strategy, "whole_stream", False)
        with rehearsal_mode(lambda: getattr(strategy, "memory_sizes", None)):
            for task, experience in enumerate(streams["train"]):
                if not whole or task == len(plan.tasks) - 1:
                    train = streams["train"] if whole else experience
                    strategy.train(train, eval_streams=[streams["valid"][task : task + 1]])
                    sizes.append(_sizes(strategy, task, plan))
    sizes *= len(plan.tasks) if whole else 1
    params, masks, macs, memory = zip(*sizes, strict=True)
    every = (*stages, *evaluation_passes(plan))
    return Cost(params, params, macs, macs, every, memory, memory, masks if any(masks) else ())


def _sizes(strategy: Any, task: int, plan: StreamPlan) -> tuple[int, int, int, int]:
    """Parameters, bits of masks, multiply-accumulates of an image and bytes kept, after a task."""
    model = strategy.model
    with modes_kept(model):
        model.eval()
        answer = partial(model.forward_single_task, task_label=task)
        macs = count_macs(answer, plan.input.shape, torch.device("cpu"), plan.input.dtype)
    return count_parameters(model), int(model.mask_bits), macs, sum((memory_of(strategy) or {}).values())


def stand_ins(plan: StreamPlan, images: int) -> TaskStream:
    """Make a stream of the plan's sizes of so many ``images``, which all tables refer to; classes take turns."""
    store = torch.randn(images, *plan.input.shape)
    if plan.kind == "tokens":
        store = torch.zeros_like(store, dtype=torch.int64)

    def table(task: int, count: int) -> TaskImages:
        labels = torch.tensor(plan.tasks[task].labels or range(plan.tasks[task].num_classes))
        return TaskImages(
            store,
            torch.arange(count) % images,
            labels[torch.arange(count) % len(labels)],
            task,
            plan.channels,
            hides_task=plan.scenario != "task",
        )

    tasks = tuple(
        TaskSplits(table(task, it.num_train), table(task, it.num_valid), table(task, it.num_test))
        for task, it in enumerate(plan.tasks)
    )
    return TaskStream(plan, tasks, "", ())


@dataclass
class _StandInFactory:
    """Makes the chosen backbone, which then does not compute."""

    factory: BackboneFactory
    flops: PassFlops
    summary = ""

    def build(self, sample: InputShape, factor: float) -> tuple[nn.Module, int]:
        network, features = self.factory.build(sample, factor)
        return StandIn(network, features, self.flops), features


def _backbone(context: StrategyContext) -> BackboneFactory | None:
    if context.backbone is None or not isinstance(context.options, BackboneOptions):
        return context.backbone
    network = on_meta(lambda: build_backbone(context, may_be_frozen=True)[0])
    network.train()
    return _StandInFactory(context.backbone, pass_flops(network, context.plan))


class StandIn(nn.Module):
    """Has the weights of a network, and counts what it would take, ``flops`` per image, instead of computing."""

    def __init__(self, network: nn.Module, features: int, flops: PassFlops) -> None:
        super().__init__()
        self.network, self.features, self.flops = network, features, flops

    def forward(self, images: Tensor) -> Tensor:
        """Features ``[N, F]``, all the same, of which each weight has a gradient."""
        count, tracked = _images_in(images)
        backward = self.flops.train - self.flops.evaluate
        moving = [weight for weight in self.network.parameters() if weight.requires_grad or tracked]
        output = images.flatten(1)[:, :1] * _TINY
        for weight in moving:
            output = output + _TINY * weight.flatten()[:1]
        output = output.expand(-1, self.features)
        self._add(count * (self.flops.evaluate + (backward if tracked else 0)))
        if output.requires_grad and not tracked:
            output.register_hook(lambda _: self._add(count * backward))
        return output

    @staticmethod
    def _add(flops: int) -> None:
        counter = active_counter()
        if counter is not None:
            counter.flops += flops

    def __deepcopy__(self, memo: dict[int, Any]) -> StandIn:
        return StandIn(copy.deepcopy(self.network, memo), self.features, self.flops)


def _images_in(images: Tensor) -> tuple[int, bool]:
    """The number of images, those that ``torch.func.vmap`` took one by one included; and whether it does so."""
    count, wrapped = len(images), False
    while torch._C._functorch.is_functorch_wrapped_tensor(images):
        inner = torch._C._functorch.get_unwrapped(images)
        count, images, wrapped = count * (inner.numel() // images.numel()), inner, True
    return count, wrapped
