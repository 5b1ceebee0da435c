"""The nearest class mean in pixel space: what every class-incremental learner has to beat."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import normalize

from seu_bench import Method
from seu_bench.config import UntrainedOptions
from seu_bench.config.streams import Scenario
from seu_bench.results import REFERENCE_ROWS
from seu_bench.training import StrategyContext, TaskData
from seu_bench_methods.untrained import UntrainedModel


class ClassMeans(UntrainedModel):
    """The mean sample of each class, as parameters that no gradient reaches.

    Args:
        pixels: numbers of a sample, D.
        classes: number of classes of each task.
        scenario: of the stream.
        cosine: whether the angle to a mean tells how near it is, not the distance.

    Attributes:
        means: ``[classes, D]``.
    """

    what = "class means"

    def __init__(self, pixels: int, classes: Sequence[int], scenario: Scenario, *, cosine: bool = False) -> None:
        super().__init__(classes, scenario)
        self.cosine = cosine
        self.means = nn.Parameter(torch.zeros(self.outputs, pixels), requires_grad=False)

    def forward_single_task(self, x: Tensor, task_label: int) -> Tensor:
        """Logits of the classes seen, or of the task's where the task is known: minus half the squared distance to each
        mean, less a constant; or the cosine of the angle to it."""
        x, means = x.flatten(1), self.means
        if self.cosine:
            return self.answer(normalize(x), normalize(means), torch.zeros_like(self.counts), task_label)
        return self.answer(x, means, -means.square().sum(dim=1) / 2, task_label)


class NearestMean(Method):
    """The nearest mean of a class's training images answers: no network, nothing forgotten."""

    name = "nearest_mean"
    title = "nearest class mean"
    inputs = ("image", "features")
    reference = REFERENCE_ROWS["nearest_mean"]
    after_task_stage = "means"
    online = True  # the means are the same wherever tasks end
    model: ClassMeans

    class Options(UntrainedOptions):
        """Options of the nearest mean."""

        distance: Literal["euclidean", "cosine"] = Field(
            "euclidean", description="to the mean of a class; cosine: of the angle, as SimpleCIL (Zhou et al. 2023)"
        )

    @classmethod
    def make_model(cls, context: StrategyContext) -> ClassMeans:
        """Return means of nothing yet."""
        plan = context.plan
        cosine = context.options.distance == "cosine"
        return ClassMeans(math.prod(plan.input.shape), plan.classes_per_task, plan.scenario, cosine=cosine)

    def after_task(self, task: TaskData) -> None:
        """Take the task's images into the means, in one pass."""
        model, first = self.model, self.model.first_class(task.index)
        sums, counts = torch.zeros_like(model.means), torch.zeros_like(model.counts)
        for x, y in self.counted(task.train):
            sums.index_add_(0, y + first, x.flatten(1))
            counts += torch.bincount(y + first, minlength=len(counts))
        total = model.counts + counts
        model.means.copy_((model.means * model.counts[:, None] + sums) / total.clamp(min=1)[:, None])
        model.counts = total
