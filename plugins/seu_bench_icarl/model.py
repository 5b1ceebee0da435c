"""A backbone with one head that grows, which answers by the nearest mean of exemplars between two tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, normalize

from seu_bench.models import BackboneModel


class ExemplarModel(BackboneModel):
    """While a task is learned its head answers; afterwards the class whose exemplars' mean feature is nearest.

    Args:
        backbone: images ``[N, C, H, W]`` -> features ``[N, features]``.
        features: width of its output.
        classes: number of classes of each task.

    Attributes:
        means: ``[classes, features]``, of length 1; 0 for classes without exemplars.
        answers_by_means: whether the means answer.
    """

    means: Tensor

    def __init__(self, backbone: nn.Module, features: int, classes: Sequence[int]) -> None:
        super().__init__(backbone, features, classes, "class")
        self.register_buffer("means", torch.zeros(sum(classes), features))
        self.answers_by_means = False

    def begin_task(self, task: int) -> None:
        """Let the head grow, and answer."""
        super().begin_task(task)
        self.answers_by_means = False

    def answer_by(self, means: Tensor) -> None:
        """Answer from now on by the nearest of ``means`` ``[classes seen, features]``."""
        self.means = torch.zeros_like(self.means)
        self.means[: len(means)] = means
        self.answers_by_means = True

    def network_logits(self, images: Tensor) -> Tensor:
        """The head's logits ``[N, classes seen]``."""
        logits: Tensor = self.heads[0](self.backbone_features(images))
        return logits

    def features(self, images: Tensor) -> Tensor:
        """Features ``[N, F]`` of length 1."""
        # In the precision of the means, which may be higher than that of the layers.
        return normalize(self.backbone_features(images).to(self.means.dtype), dim=1)

    def forward_single_task(self, x: Tensor, task_label: int) -> Tensor:
        """Logits ``[N, classes seen]``: the head's, or minus the squared distance to each mean less a constant."""
        if not self.answers_by_means:
            return self.network_logits(x)
        # |f - m|^2 = |f|^2 - 2 f.m + |m|^2, and |f| = 1; a class without exemplars has no mean to be near to.
        means = self.means[: self._growing.seen]
        squares = means.square().sum(dim=1)
        offsets = torch.where(squares > 0, -squares, torch.finfo(squares.dtype).min)
        return linear(self.features(x), 2 * means, offsets)

    def forward_all_tasks(self, x: Tensor) -> dict[int, Tensor]:
        """The logits of the one head, under the task label 0."""
        return {0: self.forward_single_task(x, 0)}

    def architecture(self) -> dict[str, Any]:
        """The number of tasks seen, and whether the means answer."""
        return {**super().architecture(), "answers_by_means": self.answers_by_means}

    def load_architecture(self, architecture: Mapping[str, Any]) -> None:
        """Make a new model like the one that gave it.

        Raises:
            ValueError: it is the architecture of another model.
        """
        known = dict(architecture)
        answers = known.pop("answers_by_means", None)
        if not isinstance(answers, bool):
            raise ValueError("it does not say whether the means answer")
        super().load_architecture(known)
        self.answers_by_means = answers
