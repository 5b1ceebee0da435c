"""What replays: the scholar as it was when a task began."""

from __future__ import annotations

import copy

import torch
from torch import Tensor
from torch.nn.functional import pad

from seu_bench.models import freeze
from seu_bench_dgr import Targets
from seu_bench_dgr.model import Scholar


class OldScholar:
    """Images of earlier tasks with labels: a copy of the solver, and the generator, which does not learn meanwhile.

    Args:
        model: that learns; its head already answers with the classes of ``task``.
        task: 0-based number of the task that begins, not the first.
        targets: what images are labelled by.

    Attributes:
        task: as given.
        solver: the copy, frozen and in evaluation mode, which answers with the classes of earlier tasks alone.
    """

    def __init__(self, model: Scholar, task: int, targets: Targets) -> None:
        self.task = task
        self.targets: Targets = targets
        self.generator = model.generator
        self.solver = copy.deepcopy(model.alone(task)).eval()
        self.solver.begin_task(task - 1)
        freeze(self.solver)

    @torch.no_grad()
    def replay(self, count: int) -> tuple[Tensor, Tensor]:
        """Draw images ``[count, C, H, W]`` and their labels: ``[count]`` numbers of classes, or ``[count, classes]``
        probabilities."""
        images = self.generator.images(count)
        logits = self.solver.forward_single_task(images, self.task - 1)
        return images, logits.argmax(dim=1) if self.targets == "hard" else logits.softmax(dim=1)

    @staticmethod
    def widened(targets: Tensor, classes: int) -> Tensor:
        """Targets for a head of ``classes`` outputs: the probability of a class that is new is 0."""
        return targets if targets.dim() == 1 else pad(targets, (0, classes - targets.shape[1]))


def share_of_task(task: int) -> float:
    """Weight of a task's own images: its share of the tasks learned until then.

    Args:
        task: 0-based.

    Returns:
        ``1 / (task + 1)``.
    """
    return 1 / (task + 1)
