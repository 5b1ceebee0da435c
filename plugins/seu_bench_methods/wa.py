"""WA (B. Zhao et al., "Maintaining Discrimination and Fairness in Class Incremental Learning", CVPR 2020)."""

from __future__ import annotations

import torch
from torch import Tensor

from seu_bench.models.backbone import PartedHead
from seu_bench.training import TaskData
from seu_bench_methods.exemplars import TaughtExemplars


class WeightAligning(TaughtExemplars):
    """Distillation and exemplars; then the head's rows of new classes are made as long as those of old ones (WA).

    The rows are kept from becoming negative in training, so that their length says how large logits of features are
    that are not negative either (section 4.3).
    """

    name = "wa"
    title = "WA"
    citation = "seu_bench_kit:zhao2020maintaining"

    def batch_loss(self, x: Tensor, y: Tensor, task: Tensor, logits: Tensor) -> Tensor:
        """Return cross-entropy and distillation, weighted by numbers of new and old classes."""
        return self.distilled_loss(x, y, logits)

    def optimizer_step(self) -> None:
        """Clip the weights of the head at 0 after each step."""
        super().optimizer_step()
        with torch.no_grad():
            for rows in self.rows():
                rows.clamp_(min=0)

    def after_task(self, task: TaskData) -> None:
        """Multiply the new classes' rows by the mean length of the others over their own, and choose exemplars."""
        rows, old = self.rows(), self.earlier
        with torch.no_grad():
            lengths = torch.cat(rows).norm(dim=1)
            new = len(lengths) - old
            if old and new:
                rows[-1][-new:].mul_(lengths[:old].mean() / lengths[old:].mean())
        super().after_task(task)

    def rows(self) -> list[Tensor]:
        """Return the weights ``[n, F]`` of the classes seen, in one tensor or one for each task that added any."""
        head, seen = self.network.head(0), self.network.classes_seen
        return (
            [it.weight for it in head.begun] if isinstance(head, PartedHead) else [head.get_parameter("weight")[:seen]]
        )
