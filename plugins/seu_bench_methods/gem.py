"""GEM (D. Lopez-Paz & M. Ranzato, "Gradient Episodic Memory for Continual Learning", NeurIPS 2017)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import quadprog
import torch
from pydantic import Field, NonNegativeFloat
from torch import Tensor

from seu_bench.config import LEARNING_RATES, TuningGrid
from seu_bench_methods.episodic import Episodic, EpisodicOptions

#: Added to the diagonal of the quadratic program's matrix, which need not be invertible (published code).
DAMPING = 1e-3


class Gem(Episodic):
    """Gradient episodic memory (Lopez-Paz & Ranzato 2017)."""

    name = "gem"
    title = "GEM"
    citation = "seu_bench_kit:lopezpaz2017gradient"

    class Options(EpisodicOptions):
        """Options of GEM."""

        tuning_grid: ClassVar[TuningGrid] = {"memory_strength": (0.0, 0.5, 1.0), "learning_rate": LEARNING_RATES}

        memory_strength: NonNegativeFloat = Field(0.5, description="margin of the projection, in favour of old tasks")

    def project(self, gradient: Tensor) -> Tensor | None:
        """``g + G^T v`` with ``v = argmin 1/2 v^T G G^T v + (G g)^T v, v >= memory_strength`` (equations 11 and 12).

        The rows of ``G`` are the gradients of earlier tasks; it is ``g`` itself that remains where none of them points
        against it.
        """
        earlier = torch.stack([self.gradient_at(positions) for positions in self.memory.by_task()])
        along = earlier.mv(gradient)
        if not bool((along < 0).any()):
            return None
        # Row by row: what is counted of a batch must not hang on whether it was projected, and `mv` does not count.
        products = torch.stack([earlier.mv(row) for row in earlier]).double().cpu().numpy()
        tasks = len(products)
        matrix = (products + products.T) / 2 + DAMPING * np.eye(tasks)
        margins = np.full(tasks, self.options.memory_strength)
        v = quadprog.solve_qp(matrix, -along.double().cpu().numpy(), np.eye(tasks), margins)[0]
        return gradient + earlier.T.mv(torch.from_numpy(v).to(earlier))
