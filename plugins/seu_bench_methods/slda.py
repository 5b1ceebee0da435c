"""Streaming linear discriminant analysis in pixel space: the best that means and one covariance can do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import linear

from seu_bench import Method
from seu_bench.config import TuningGrid, UntrainedOptions
from seu_bench.config.streams import Scenario
from seu_bench.training import StrategyContext, TaskData
from seu_bench_methods.untrained import UntrainedModel


class Discriminant(UntrainedModel):
    """Linear discriminant analysis of pixels, as parameters that no gradient reaches.

    Args:
        pixels: numbers of an image, D.
        classes: number of classes of each task.
        scenario: ``domain``: tasks share their classes; otherwise they have classes of their own.
        open_ended: whether tasks may be added: then nothing is computed of classes to come, if only of zeros.

    Attributes:
        means: ``[classes, D]``.
        scatter: ``[D, D]``, sum over all images of the products of their distances to the class mean.
        counts: ``[classes]`` images of each class.
        weight, offset: ``[classes, D]`` and ``[classes]``, which answer; they follow from the rest.
    """

    what = "a discriminant analysis"
    counts: Tensor
    weight: Tensor
    offset: Tensor

    def __init__(self, pixels: int, classes: Sequence[int], scenario: Scenario, *, open_ended: bool = False) -> None:
        super().__init__(classes)
        self.scenario, self.open_ended = scenario, open_ended
        outputs = classes[0] if scenario == "domain" else sum(classes)
        self.means = nn.Parameter(torch.zeros(outputs, pixels), requires_grad=False)
        self.scatter = nn.Parameter(torch.zeros(pixels, pixels), requires_grad=False)
        self.register_buffer("counts", torch.zeros(outputs))
        self.register_buffer("weight", torch.zeros(outputs, pixels))
        self.register_buffer("offset", torch.zeros(outputs))

    @property
    def rows(self) -> int:
        """Number of classes that are computed with."""
        grows = self.open_ended and self.scenario != "domain"
        return sum(self.classes_per_task[: self.tasks]) if grows else len(self.means)

    def first_class(self, task: int) -> int:
        """Place of a task's first class among all, from which its labels count."""
        return sum(self.classes_per_task[:task]) if self.scenario == "task" else 0

    def add(self, sums: Tensor, counts: Tensor, products: Tensor, shrinkage: float) -> None:
        """Take in images, and decide anew.

        Args:
            sums: ``[classes, D]`` of the images of each class.
            counts: ``[classes]`` of them.
            products: ``[D, D]``, sum over all images of the product of each with itself.
            shrinkage: share ``e`` of the identity in the covariance, in (0, 1].
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
        covariance = scatter / total.sum().clamp(min=1)
        # As large as the mean variance, so that the scale of the pixels makes no difference.
        variance = covariance.diagonal().mean().clamp(min=torch.finfo(torch.float32).tiny)
        identity = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
        means = self.means[:rows].double()
        weight = torch.linalg.solve((1 - shrinkage) * covariance + shrinkage * variance * identity, means.T).T
        self.weight[:rows].copy_(weight)
        self.offset[:rows].copy_(-(weight * means).sum(dim=1) / 2)

    def forward_single_task(self, x: Tensor, task_label: int) -> Tensor:
        """Logits ``[N, classes]`` of the classes seen, or of the task's where the task is known."""
        first = self.first_class(task_label)
        last = sum(self.classes_per_task[: self.tasks])
        if self.scenario != "class":
            last = first + self.classes_per_task[task_label]
        known = self.counts[first:last] > 0
        offset = torch.where(known, self.offset[first:last], torch.finfo(x.dtype).min)
        return linear(x.flatten(1), self.weight[first:last], offset)


class Slda(Method):
    """Streaming linear discriminant analysis of pixels (Hayes & Kanan 2020): one pass, nothing forgotten.

    ``W = mu ((1 - e) S + e (tr S / D) I)^-1`` and ``b = -1/2 diag(W mu^T)`` with the class means ``mu`` and the
    covariance ``S`` within classes of all images so far, exactly and whatever their order. In T. L. Hayes, C. Kanan,
    "Lifelong Machine Learning with Deep Streaming Linear Discriminant Analysis", CVPR Workshops 2020, features come
    from a pretrained network and the covariance is updated image by image.
    """

    name = "slda"
    inputs = ("image", "features")
    after_task_stage = "moments"
    model: Discriminant

    class Options(UntrainedOptions):
        """Options of discriminant analysis."""

        tuning_grid: ClassVar[TuningGrid] = {"shrinkage": (0.0001, 0.001, 0.01, 0.1)}

        shrinkage: float = Field(
            1e-2, gt=0, le=1, description="share of the identity, as large as the mean variance, in the covariance"
        )

    @classmethod
    def make_model(cls, context: StrategyContext) -> Discriminant:
        """Return the moments of nothing yet."""
        plan = context.plan
        pixels, classes = math.prod(plan.input.shape), plan.classes_per_task
        return Discriminant(pixels, classes, plan.scenario, open_ended=plan.open_ended)

    def after_task(self, task: TaskData) -> None:
        """Sum up the task's images in one pass, in double precision."""
        model, first, rows = self.model, self.model.first_class(task.index), self.model.rows
        sums, counts = torch.zeros_like(model.means[:rows]).double(), torch.zeros_like(model.counts[:rows]).double()
        products = torch.zeros_like(model.scatter).double()
        for x, y in self.counted(task.train):
            pixels = x.flatten(1).double()
            sums.index_add_(0, y + first, pixels)
            counts += torch.bincount(y + first, minlength=len(counts))
            products += pixels.T @ pixels
        model.add(sums, counts, products, self.options.shrinkage)
