"""RanPAC: ridge regression on a random projection (McDonnell et al., NeurIPS 2023)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import torch
from pydantic import Field, NonNegativeInt
from torch import Tensor, nn
from torch.nn.functional import relu

from seu_bench import Method
from seu_bench.config import UntrainedOptions
from seu_bench.config.streams import Scenario
from seu_bench.data import TaskImages
from seu_bench.training import StrategyContext, TaskData
from seu_bench.utils.rehearsing import abridge
from seu_bench_methods.untrained import UntrainedModel, withhold

#: Ridges to choose from, as shares of the Gram matrix's mean diagonal, so that scale and number of samples make no
#: difference. The least is far above what rounding to 32 bits adds to the Gram matrix's small eigenvalues.
RIDGES: Final = tuple(10.0**power for power in range(2, -5, -1))


class Moments(NamedTuple):
    """Sums over samples: ``gram`` ``[M, M]``, and ``sums`` ``[C, M]`` and ``counts`` ``[C]`` of classes."""

    gram: Tensor
    sums: Tensor
    counts: Tensor


class ProjectedRidge(UntrainedModel):
    """Ridge regression of the classes on projected samples, as parameters that no gradient reaches.

    Args:
        width: numbers of a sample, D.
        projection: numbers M that they are projected to; 0: they are not, and M is D.
        classes: number of classes of each task.
        scenario: of the stream.
        open_ended: whether tasks may be added.

    Attributes:
        projection: ``[D, M]``, which is drawn and stays; ``None``: there is none.
        gram: ``[M, M]``, sum over all samples of the product of each with itself, projected.
        sums: ``[C, M]`` of the projected samples of each class.
        weight: ``[C, M]``, which answers; it follows from the rest.
    """

    what = "a ridge regression of so wide a projection"
    projection: nn.Parameter | None
    weight: Tensor

    def __init__(
        self, width: int, projection: int, classes: Sequence[int], scenario: Scenario, *, open_ended: bool = False
    ) -> None:
        super().__init__(classes, scenario, open_ended=open_ended)
        wide = projection or width
        drawn = nn.Parameter(torch.randn(width, projection), requires_grad=False) if projection else None
        self.register_parameter("projection", drawn)
        self.gram = nn.Parameter(torch.zeros(wide, wide), requires_grad=False)
        self.sums = nn.Parameter(torch.zeros(self.outputs, wide), requires_grad=False)
        self.register_buffer("weight", torch.zeros(self.outputs, wide))

    def project(self, x: Tensor) -> Tensor:
        """Return ``[N, M]`` of samples ``[N, ...]``."""
        x = x.flatten(1)
        return x if self.projection is None else relu(x @ self.projection)

    def add(self, found: Moments) -> None:
        """Take in the moments of samples."""
        rows = self.rows
        self.gram.copy_(self.gram.double() + found.gram)
        self.sums[:rows].copy_(self.sums[:rows].double() + found.sums)
        self.counts[:rows] += found.counts

    def solve(self, ridge: float) -> Tensor:
        """Return the weights ``[C, M]`` of a ridge, ``sums (gram + ridge I)^-1``, in double precision."""
        gram = self.gram.double()
        # Of samples that are all zero the Gram matrix is zero.
        gram.diagonal().add_(ridge * gram.diagonal().mean() + torch.finfo(torch.float32).tiny)
        return torch.cholesky_solve(self.sums[: self.rows].double().T, torch.linalg.cholesky(gram)).T

    def forward_single_task(self, x: Tensor, task_label: int) -> Tensor:
        """Logits ``[N, classes]`` of the classes seen, or of the task's where the task is known."""
        return self.answer(self.project(x), self.weight, torch.zeros_like(self.counts), task_label)


class Ranpac(Method):
    """Ridge regression on a random projection with ReLU (RanPAC, McDonnell et al. 2023), without its first-session
    adaptation: one pass, nothing forgotten.

    ``W = Q (G + r I)^-1`` with the Gram matrix ``G`` and the class sums ``Q`` of all samples so far, whatever their
    order. After each task the ridge ``r`` is that with the least squared error on withheld images of the task.
    """

    name = "ranpac"
    title = "RanPAC"
    citation = "seu_bench_kit:mcdonnell2023ranpac"
    inputs = ("image", "features")
    after_task_stage = "moments"
    check_options = {"projection": 100}
    model: ProjectedRidge

    class Options(UntrainedOptions):
        """Options of RanPAC."""

        projection: NonNegativeInt = Field(2000, description="numbers that samples are projected to; 0: they are not")

    @classmethod
    def make_model(cls, context: StrategyContext) -> ProjectedRidge:
        """Return the moments of nothing yet, and draw the projection."""
        plan, projection = context.plan, context.options.projection
        width, classes = math.prod(plan.input.shape), plan.classes_per_task
        return ProjectedRidge(width, projection, classes, plan.scenario, open_ended=plan.open_ended)

    def after_task(self, task: TaskData) -> None:
        """Sum up the task's images in one pass, choose the ridge on those that are withheld, and solve."""
        model, (learned, held) = self.model, withhold(task)
        model.add(self.moments(learned))
        found, errors = self.moments(held), dict[float, float]()
        for turn in abridge([1] * len(RIDGES)):
            weight = model.solve(RIDGES[turn])
            errors[RIDGES[turn]] = float(((weight @ found.gram - 2 * found.sums) * weight).sum())
        if held is not task.valid:
            model.add(found)
        model.weight[: model.rows].copy_(model.solve(min(errors, key=errors.__getitem__)))

    def moments(self, images: TaskImages) -> Moments:
        """Return the moments of images, of classes so far."""
        model, first = self.model, self.model.first_class(images.task)
        gram, sums = torch.zeros_like(model.gram).double(), torch.zeros_like(model.sums[: model.rows]).double()
        counts = torch.zeros_like(model.counts[: model.rows])
        for x, y in self.counted(images):
            rows = model.project(x).double()
            gram += rows.T @ rows
            sums.index_add_(0, y + first, rows)
            counts += torch.bincount(y + first, minlength=len(counts))
        return Moments(gram, sums, counts)
