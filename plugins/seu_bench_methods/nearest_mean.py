"""The nearest class mean in pixel space: what every class-incremental learner has to beat."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from seu_bench import Method
from seu_bench.config import UntrainedOptions
from seu_bench.config.streams import Scenario
from seu_bench.results import REFERENCE_ROWS
from seu_bench.training import StrategyContext, TaskData
from seu_bench_methods.untrained import UntrainedModel


class ClassMeans(UntrainedModel):
    """The mean image of each class, as parameters that no gradient reaches.

    Args:
        pixels: numbers of an image, D.
        classes: number of classes of each task.
        scenario: ``class``: tasks have classes of their own; ``domain``: they share them.

    Attributes:
        means: ``[classes, D]``.
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

    def forward_single_task(self, x: Tensor, task_label: int) -> Tensor:
        """Logits ``[N, classes seen]``: minus half the squared distance to each mean, less a constant."""
        means = self.means[: self.seen]
        offsets = torch.where(self.counts[: self.seen] > 0, -means.square().sum(dim=1) / 2, torch.finfo(x.dtype).min)
        return linear(x.flatten(1), means, offsets)


class NearestMean(Method):
    """The nearest mean of a class's training images answers: no network, nothing forgotten."""

    name = "nearest_mean"
    Options = UntrainedOptions
    scenarios = ("class", "domain")
    inputs = ("image", "features")
    reference = REFERENCE_ROWS["nearest_mean"]
    after_task_stage = "means"
    model: ClassMeans

    @classmethod
    def make_model(cls, context: StrategyContext) -> ClassMeans:
        """Return means of nothing yet."""
        plan = context.plan
        return ClassMeans(math.prod(plan.input.shape), plan.classes_per_task, plan.scenario)

    def after_task(self, task: TaskData) -> None:
        """Take the task's images into the means, in one pass."""
        model = self.model
        sums, counts = torch.zeros_like(model.means), torch.zeros_like(model.counts)
        for x, y in self.counted(task.train):
            sums.index_add_(0, y, x.flatten(1))
            counts += torch.bincount(y, minlength=len(counts))
        total = model.counts + counts
        model.means.copy_((model.means * model.counts[:, None] + sums) / total.clamp(min=1)[:, None])
        model.counts = total
