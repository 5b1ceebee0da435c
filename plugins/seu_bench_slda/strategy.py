"""Class means and the covariance within classes, of pixels: one pass over the images.

Source: Hayes, Kanan, "Lifelong Machine Learning with Deep Streaming Linear Discriminant Analysis", 2020. There features
come from a pretrained network and the covariance is updated image by image; here images are their own features, and
means and covariance are those of all images so far, exactly, whatever their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from seu_bench.config.streams import Scenario
from seu_bench.models import UntrainedModel, count_parameters, state_bytes
from seu_bench.training import (
    Cost,
    EpochlessStage,
    Phase,
    StageCost,
    StagedStrategy,
    StrategyContext,
    TaskData,
    checked_options,
    evaluation_passes,
    fixed_cost,
    on_meta,
    task_macs,
)
from seu_bench_slda import SldaOptions


@dataclass(frozen=True)
class Moments:
    """What is summed up over a task's images: by class ``[classes, pixels]`` and ``[classes]``, and over all
    ``[pixels, pixels]`` the products of each image with itself."""

    sums: Tensor
    counts: Tensor
    products: Tensor


class Discriminant(UntrainedModel):
    """Linear discriminant analysis of pixels, as parameters that no gradient reaches.

    Args:
        pixels: numbers of an image, D.
        classes: number of classes of each task.
        scenario: ``domain``: tasks share their classes; otherwise they have classes of their own.
        shrinkage: share of the identity in the covariance, in (0, 1].

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

    def __init__(self, pixels: int, classes: Sequence[int], scenario: Scenario, shrinkage: float) -> None:
        super().__init__(classes)
        self.scenario, self.shrinkage = scenario, shrinkage
        outputs = classes[0] if scenario == "domain" else sum(classes)
        self.means = nn.Parameter(torch.zeros(outputs, pixels), requires_grad=False)
        self.scatter = nn.Parameter(torch.zeros(pixels, pixels), requires_grad=False)
        self.register_buffer("counts", torch.zeros(outputs))
        self.register_buffer("weight", torch.zeros(outputs, pixels))
        self.register_buffer("offset", torch.zeros(outputs))

    def first_class(self, task: int) -> int:
        """Place of a task's first class among all, from which its labels count."""
        return sum(self.classes_per_task[:task]) if self.scenario == "task" else 0

    def add(self, found: Moments) -> None:
        """Take in the images of a task."""
        counts = found.counts.double()
        there = counts.clamp(min=1)[:, None]
        means = found.sums / there
        before, total = self.counts.double(), self.counts.double() + counts
        scatter = found.products - (means * counts[:, None]).T @ means
        # Where a class had images before, both means move to the common one.
        apart = means - self.means.double()
        share = torch.where(total > 0, before * counts / total.clamp(min=1), 0.0)
        scatter = self.scatter.double() + scatter + (apart * share[:, None]).T @ apart
        self.means.copy_((self.means.double() * before[:, None] + found.sums) / total.clamp(min=1)[:, None])
        self.scatter.copy_(scatter)
        self.counts.copy_(total)
        self._decide(scatter / total.sum().clamp(min=1))

    def _decide(self, covariance: Tensor) -> None:
        pixels = len(covariance)
        # As large as the mean variance, so that the scale of the pixels makes no difference.
        variance = covariance.diagonal().mean().clamp(min=torch.finfo(torch.float32).tiny)
        identity = torch.eye(pixels, dtype=covariance.dtype, device=covariance.device)
        shrunk = (1 - self.shrinkage) * covariance + self.shrinkage * variance * identity
        means = self.means.double()
        weight = torch.linalg.solve(shrunk, means.T).T
        self.weight.copy_(weight)
        self.offset.copy_(-(weight * means).sum(dim=1) / 2)

    def forward_single_task(self, x: Tensor, task_label: int) -> Tensor:
        """Logits ``[N, classes]`` of the classes seen, or of the task's where the task is known."""
        first = self.first_class(task_label)
        last = sum(self.classes_per_task[: self.tasks])
        if self.scenario != "class":
            last = first + self.classes_per_task[task_label]
        known = self.counts[first:last] > 0
        offset = torch.where(known, self.offset[first:last], torch.finfo(x.dtype).min)
        return linear(x.flatten(1), self.weight[first:last], offset)


class MomentsStage(EpochlessStage[Moments]):
    """One pass over a task's training images."""

    def __init__(self, strategy: Slda, task: TaskData) -> None:
        super().__init__("moments", task.index, strategy.seed_for("moments", task.index), strategy.device)
        self.model, self.images, self.batch_size = strategy.model, task.train, strategy.eval_mb_size

    def result(self) -> Moments:
        """Sum up."""
        model = self.model
        sums, counts = torch.zeros_like(model.means).double(), torch.zeros_like(model.counts)
        products = torch.zeros_like(model.scatter).double()
        first = model.first_class(self.task)
        for x, y in self.images.batches(self.batch_size, shuffle=False):
            rows = x.flatten(1).double()
            sums.index_add_(0, y + first, rows)
            counts += torch.bincount(y + first, minlength=len(counts))
            products += rows.T @ rows
            self.passed(len(y))
        return Moments(sums, counts, products)


class Slda(StagedStrategy):
    """The class answers whose mean is nearest, measured by the covariance within classes."""

    model: Discriminant

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """One pass."""
        return [Phase(lambda: MomentsStage(self, task), self.model.add)]


def discriminant(context: StrategyContext) -> Discriminant:
    """The model of a run, which has seen nothing yet."""
    plan, options = context.plan, checked_options(context, SldaOptions)
    pixels = plan.channels * plan.height * plan.width
    return Discriminant(pixels, plan.classes_per_task, plan.scenario, options.shrinkage)


def build_slda(context: StrategyContext) -> Slda:
    """The strategy of a run."""
    return Slda.of(context, model=discriminant(context))


def slda_cost(context: StrategyContext) -> Cost:
    """Exact: each training image is read once, and multiplied with itself."""
    plan, model = context.plan, on_meta(lambda: discriminant(context))
    per_image = 2 * len(model.scatter) ** 2
    stages = []
    for task, planned in enumerate(plan.tasks):
        flops = per_image * planned.num_train
        stages.append(StageCost("moments", task, 0, planned.num_train, flops, flops))
    macs = task_macs(model, plan)
    return fixed_cost(count_parameters(model), macs, [*stages, *evaluation_passes(plan)], state_bytes(model))
