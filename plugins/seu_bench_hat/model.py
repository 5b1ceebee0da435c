"""One network for all tasks, with a gate for each task on each of its units."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from seu_bench.models import MultiHeadModel, chain_of


class GatedModel(MultiHeadModel):
    """A backbone that all tasks share, each through gates of its own, and a linear head for each.

    Embeddings are drawn from N(0, 1), those of all tasks at the start, like the heads.

    Args:
        backbone: a chain of layers (:func:`~seu_bench.models.chain_of`).
        features: width of its output.
        classes: outputs of each task's head.
        s_max: factor of the embeddings within the gates in evaluation.

    Attributes:
        layers: the backbone's layers, in order.
        scale: factor within the gates in training, set for every batch.

    Example:
        ``GatedModel(*build_backbone(context), context.plan.classes_per_task, 400.0)``
    """

    def __init__(self, backbone: nn.Module, features: int, classes: Sequence[int], s_max: float) -> None:
        super().__init__(classes)
        self.layers = chain_of(backbone, "hat")
        self.backbone = backbone
        self.heads = nn.ModuleList(nn.Linear(features, width) for width in classes)
        self.embeddings = nn.ModuleList(
            nn.ParameterList(torch.randn(layer.units) for layer in self.layers) for _ in classes
        )
        self.s_max = s_max
        self.scale = s_max

    def embeddings_of(self, task: int) -> list[nn.Parameter]:
        """The embeddings of a task, ``[units]`` for each layer."""
        return list(self.embeddings[task].parameters())

    def gates(self, task: int, scale: float | None = None) -> list[Tensor]:
        """The gates of a task.

        Args:
            task: 0-based.
            scale: factor of the embeddings; ``None``: that of the batch in training, the largest in evaluation.

        Returns:
            ``[units]`` from 0 to 1 for each layer.
        """
        if scale is None:
            scale = self.scale if self.training else self.s_max
        return [torch.sigmoid(scale * embedding) for embedding in self.embeddings_of(task)]

    def forward_single_task(self, x: Tensor, task_label: int) -> Tensor:
        """Logits ``[N, classes_per_task[task]]``; each layer's output is gated behind activation, dropout and pooling.

        Before pooling, where the paper has it, a gate gives the same: it is not negative.
        """
        for layer, gate in zip(self.layers, self.gates(task_label), strict=True):
            x = layer.after(layer.weighted(layer.before(x)))
            x = x * gate.view(-1, *(1 for _ in x.shape[2:]))
        logits: Tensor = self.heads[task_label](x)
        return logits

    def task_module(self, task: int) -> nn.Module:
        """The backbone, the task's embeddings and its head."""
        return nn.ModuleList([self.backbone, self.embeddings[task], self.heads[task]])
