"""Streaming linear discriminant analysis in pixel space: the best that means and one covariance can do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

import torch
from pydantic import Field
from torch import Tensor, nn

from seu_bench import Method
from seu_bench.config import TuningGrid, UntrainedOptions
from seu_bench.config.streams import Scenario
from seu_bench.data import TaskImages
from seu_bench.training import StrategyContext, TaskData
from seu_bench.utils.rehearsing import abridge
from seu_bench_methods.untrained import UntrainedModel, withhold

Share: TypeAlias = Annotated[float, Field(gt=0, le=1)]
#: Values that ``shrinkage=auto`` chooses from.
SHRINKAGES: Final = (0.9, 0.6, 0.3, 0.1, 0.03, 0.01, 0.001)


class Discriminant(UntrainedModel):
    """Linear discriminant analysis of pixels, as parameters that no gradient reaches.

    Args:
        pixels: numbers of an image, D.
        classes: number of classes of each task.
        scenario: of the stream.
        open_ended: whether tasks may be added.

    Attributes:
        means: ``[classes, D]``.
        scatter: ``[D, D]``, sum over all images of the products of their distances to the class mean.
        weight, offset: ``[classes, D]`` and ``[classes]``, which answer; they follow from the rest.
    """

    what = "a discriminant analysis"
    weight: Tensor
    offset: Tensor

    def __init__(self, pixels: int, classes: Sequence[int], scenario: Scenario, *, open_ended: bool = False) -> None:
        super().__init__(classes, scenario, open_ended=open_ended)
        self.means = nn.Parameter(torch.zeros(self.outputs, pixels), requires_grad=False)
        self.scatter = nn.Parameter(torch.zeros(pixels, pixels), requires_grad=False)
        self.register_buffer("weight", torch.zeros(self.outputs, pixels))
        self.register_buffer("offset", torch.zeros(self.outputs))

    def add(self, sums: Tensor, counts: Tensor, products: Tensor) -> Tensor:
        """Take in images, and return the covariance ``[D, D]`` within classes of all so far.

        Args:
            sums: ``[classes, D]`` of the images of each class.
            counts: ``[classes]`` of them.
            products: ``[D, D]``, sum over all images of the product of each with itself.
        """
        rows = self.rows
        means = sums / counts.clamp(min=1)[:, None]
        before, held = self.counts[:rows].double(), self.means[:rows].double()
        total = before + counts
        # Where a class had images before, both means move to the common one.
        apart, share = means - held, torch.where(total > 0, before * counts / total.clamp(min=1), 0.0)
        scatter = products - (means * counts[:, None]).T @ means
        scatter = self.scatter.double() + scatter + (apart * share[:, None]).T @ apart
        self.means[:rows].copy_((held * before[:, None] + sums) / total.clamp(min=1)[:, None])
        self.scatter.copy_(scatter)
        self.counts[:rows].copy_(total)
        covariance: Tensor = scatter / total.sum().clamp(min=1)
        return covariance

    def solve(self, covariance: Tensor, shrinkage: float) -> Tensor:
        """Return the weights ``[classes, D]`` for a share ``shrinkage`` of the identity in the covariance."""
        # As large as the mean variance, so that the scale of the pixels makes no difference. Of images that are all the
        # same the covariance is rounding alone, which is less than a millionth of the means.
        least = 1e-6 * self.means.double().square().mean() + torch.finfo(torch.float32).tiny
        variance = covariance.diagonal().mean().maximum(least)
        identity = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
        means = self.means[: self.rows].double()
        weight: Tensor = torch.linalg.solve((1 - shrinkage) * covariance + shrinkage * variance * identity, means.T)
        return weight.T

    def offsets(self, weight: Tensor) -> Tensor:
        """Return the offsets ``[..., classes]`` of weights ``[..., classes, D]``."""
        return -(weight * self.means[: self.rows].double()).sum(dim=-1) / 2

    def decide(self, weight: Tensor) -> None:
        """Answer with these weights from now on."""
        self.weight[: self.rows].copy_(weight)
        self.offset[: self.rows].copy_(self.offsets(weight))

    def forward_single_task(self, x: Tensor, task_label: int) -> Tensor:
        """Logits ``[N, classes]`` of the classes seen, or of the task's where the task is known."""
        return self.answer(x.flatten(1), self.weight, self.offset, task_label)


class Slda(Method):
    """Streaming linear discriminant analysis of pixels (Hayes & Kanan 2020): one pass, nothing forgotten.

    ``W = mu ((1 - e) S + e (tr S / D) I)^-1`` and ``b = -1/2 diag(W mu^T)`` with the class means ``mu`` and the
    covariance ``S`` within classes of all images so far, exactly and whatever their order. In T. L. Hayes, C. Kanan,
    "Lifelong Machine Learning with Deep Streaming Linear Discriminant Analysis", CVPR Workshops 2020, features come
    from a pretrained network and the covariance is updated image by image.
    """

    name = "slda"
    title = "SLDA"
    citation = "seu_bench_kit:hayes2020lifelong"
    inputs = ("image", "features")
    after_task_stage = "moments"
    online = True  # the moments are the same wherever tasks end
    model: Discriminant

    class Options(UntrainedOptions):
        """Options of discriminant analysis."""

        tuning_grid: ClassVar[TuningGrid] = {"shrinkage": (0.0001, 0.001, 0.01, 0.1)}

        shrinkage: Share | Literal["auto"] = Field(
            1e-2,
            description="share of the identity, as large as the mean variance, in the covariance; auto: chosen after "
            "each task on its validation images",
        )

    @classmethod
    def make_model(cls, context: StrategyContext) -> Discriminant:
        """Return the moments of nothing yet."""
        plan = context.plan
        pixels, classes = math.prod(plan.input.shape), plan.classes_per_task
        return Discriminant(pixels, classes, plan.scenario, open_ended=plan.open_ended)

    def after_task(self, task: TaskData) -> None:
        """Sum up the task's images in one pass, in double precision; choose the shrinkage where it is to be."""
        model, shrinkage = self.model, self.options.shrinkage
        if shrinkage != "auto":
            model.decide(model.solve(self.learn(task.train), shrinkage))
            return
        learned, held = withhold(task)
        covariance = self.learn(learned)
        weights = torch.zeros(len(SHRINKAGES), *model.means[: model.rows].shape).to(covariance)
        for turn in abridge([1] * len(SHRINKAGES)):
            weights[turn] = model.solve(covariance, SHRINKAGES[turn])
        offsets, right = model.offsets(weights), torch.zeros(len(SHRINKAGES), device=self.device)
        offsets = torch.where(model.counts[: model.rows] > 0, offsets, -torch.inf)
        for x, y in self.counted(held):
            logits = x.flatten(1).double() @ weights.mT + offsets[:, None]
            right += (logits.argmax(dim=2) == y + model.first_class(task.index)).sum(dim=1)
        shrinkage = SHRINKAGES[int(right.argmax())]  # of equal ones the first, which is the strongest
        covariance = covariance if held is task.valid else self.learn(held)
        model.decide(model.solve(covariance, shrinkage))

    def learn(self, images: TaskImages) -> Tensor:
        """Take in images, and return the covariance ``[D, D]`` within classes of all so far."""
        model, first, rows = self.model, self.model.first_class(images.task), self.model.rows
        sums, counts = torch.zeros_like(model.means[:rows]).double(), torch.zeros_like(model.counts[:rows]).double()
        products = torch.zeros_like(model.scatter).double()
        for x, y in self.counted(images):
            pixels = x.flatten(1).double()
            sums.index_add_(0, y + first, pixels)
            counts += torch.bincount(y + first, minlength=len(counts))
            products += pixels.T @ pixels
        return model.add(sums, counts, products)
