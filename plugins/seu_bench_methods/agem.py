"""A-GEM (A. Chaudhry et al., "Efficient Lifelong Learning with A-GEM", ICLR 2019)."""

from __future__ import annotations

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from seu_bench.errors import RequestError
from seu_bench_methods.episodic import Episodic, EpisodicOptions


class AGem(Episodic):
    """Averaged gradient episodic memory (Chaudhry et al. 2019)."""

    name = "agem"
    title = "A-GEM"
    citation = "seu_bench_kit:chaudhry2019efficient"

    class Options(EpisodicOptions):
        """Options of A-GEM."""

        sample_size: PositiveInt = Field(64, description="images of the reference gradient")

    def setup(self) -> None:
        """Begin with an empty memory.

        Raises:
            RequestError: it has no room for an image of each task, or the sample has none.
        """
        super().setup()
        earlier = len(self.plan.tasks) - 1
        if self.options.sample_size < earlier:
            raise RequestError(
                f"a sample of {self.options.sample_size} images has none of some of the {earlier} earlier tasks",
                where="-o sample_size",
                remedy=f"give at least {earlier}",
            )

    def project(self, gradient: Tensor) -> Tensor:
        """``g - (g^T r / r^T r) r`` where ``g^T r < 0`` (equation 11), ``r`` the gradient of a random sample of the
        memory, as many images of each task."""
        tasks = self.memory.by_task()
        share = self.options.sample_size // len(tasks)
        reference = self.gradient_at(torch.cat([its[torch.randperm(len(its))[:share]] for its in tasks]))
        along = gradient.dot(reference)
        # Asking the gradient which it is would wait for an accelerator.
        return torch.where(along >= 0, gradient, gradient - along / reference.dot(reference) * reference)
