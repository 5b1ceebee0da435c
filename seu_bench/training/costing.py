"""Parts of cost estimates: operations on torch's meta device, image passes of evaluation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from seu_bench.training.interfaces import StageCost

if TYPE_CHECKING:
    from seu_bench.data.planning import StreamPlan

T = TypeVar("T")


@dataclass(frozen=True)
class PassFlops:
    """Operations per image, forward and backward (``train``) and forward alone (``evaluate``)."""

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


def evaluation_passes(plan: StreamPlan) -> list[StageCost]:
    """Return the image passes of the evaluation after each task: test images of all tasks up to it."""
    tests = [task.num_test for task in plan.tasks]
    return [StageCost("evaluation", index, 0, sum(tests[: index + 1])) for index in range(len(tests))]
