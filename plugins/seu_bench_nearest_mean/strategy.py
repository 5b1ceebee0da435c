"""Class means of pixels: one pass over the images, in any order of tasks the same."""

from __future__ import annotations

from collections.abc import Sequence

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
    evaluation_passes,
    fixed_cost,
    on_meta,
    task_macs,
)


class ClassMeans(UntrainedModel):
    """The mean image of each class, as parameters that no gradient reaches.

    Args:
        pixels: numbers of an image.
        classes: number of classes of each task.
        scenario: ``class``: tasks have classes of their own; ``domain``: they share them.

    Attributes:
        means: ``[classes, pixels]``.
        counts: ``[classes]`` images that each is the mean of.
    """

    what = "class means"
    counts: Tensor

    def __init__(self, pixels: int, classes: Sequence[int], scenario: Scenario) -> None:
        super().__init__(classes)
        self.scenario = scenario
        outputs = sum(classes) if scenario == "class" else classes[0]
        self.means = nn.Parameter(torch.zeros(outputs, pixels), requires_grad=False)
        self.register_buffer("counts", torch.zeros(outputs))

    @property
    def seen(self) -> int:
        """Number of classes seen."""
        return sum(self.classes_per_task[: self.tasks]) if self.scenario == "class" else len(self.means)

    def add(self, sums: Tensor, counts: Tensor) -> None:
        """Take in images: sums ``[classes, pixels]`` and counts ``[classes]`` of each class."""
        total = self.counts + counts
        mean = (self.means * self.counts[:, None] + sums) / total.clamp(min=1)[:, None]
        self.means.copy_(mean)
        self.counts = total

    def forward_single_task(self, x: Tensor, task_label: int) -> Tensor:
        """Logits ``[N, classes seen]``: minus half the squared distance to each mean, less a constant."""
        means = self.means[: self.seen]
        offsets = torch.where(self.counts[: self.seen] > 0, -means.square().sum(dim=1) / 2, torch.finfo(x.dtype).min)
        return linear(x.flatten(1), means, offsets)


class MeansStage(EpochlessStage[tuple[Tensor, Tensor]]):
    """One pass over a task's training images; the result are sums and counts by class."""

    def __init__(self, strategy: NearestMean, task: TaskData) -> None:
        super().__init__("means", task.index, strategy.seed_for("means", task.index), strategy.device)
        self.model, self.images, self.batch_size = strategy.model, task.train, strategy.eval_mb_size

    def result(self) -> tuple[Tensor, Tensor]:
        """Sums ``[classes, pixels]`` and counts ``[classes]``."""
        sums, counts = torch.zeros_like(self.model.means), torch.zeros_like(self.model.counts)
        for x, y in self.images.batches(self.batch_size, shuffle=False):
            sums.index_add_(0, y, x.flatten(1))
            counts += torch.bincount(y, minlength=len(counts))
            self.passed(len(y))
        return sums, counts


class NearestMean(StagedStrategy):
    """The class whose mean image is nearest answers."""

    model: ClassMeans

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """One pass."""
        return [Phase(lambda: MeansStage(self, task), lambda found: self.model.add(*found))]


def class_means(context: StrategyContext) -> ClassMeans:
    """The model of a run, which has seen nothing yet."""
    plan = context.plan
    return ClassMeans(plan.channels * plan.height * plan.width, plan.classes_per_task, plan.scenario)


def build_nearest_mean(context: StrategyContext) -> NearestMean:
    """The strategy of a run."""
    return NearestMean.of(context, model=class_means(context))


def nearest_mean_cost(context: StrategyContext) -> Cost:
    """Exact: each training image is read once, and no convolution or matrix product is computed."""
    plan, model = context.plan, on_meta(lambda: class_means(context))
    stages = [StageCost("means", task, 0, planned.num_train, 0, 0) for task, planned in enumerate(plan.tasks)]
    macs = task_macs(model, plan)
    return fixed_cost(count_parameters(model), macs, [*stages, *evaluation_passes(plan)], state_bytes(model))
