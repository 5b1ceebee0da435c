"""LUCIR (S. Hou et al., "Learning a Unified Classifier Incrementally via Rebalancing", CVPR 2019)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Final, cast

import torch
from pydantic import Field, NonNegativeFloat
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy, linear, normalize, relu

from seu_bench.config import LEARNING_RATES, TuningGrid
from seu_bench.models import BackboneModel
from seu_bench.models.backbone import PartedHead
from seu_bench.training import Phase, StrategyContext, TaskData
from seu_bench_methods.exemplars import ExemplarOptions, TaughtExemplars

#: By how much the cosine with an exemplar's own class should exceed those with the nearest new classes, and how many.
MARGIN: Final = 0.5
NEAREST: Final = 2


class Lucir(TaughtExemplars):
    """Cosines in place of products, features that turn little, and a margin between old and new classes (LUCIR)."""

    name = "lucir"
    title = "LUCIR"
    citation = "seu_bench_kit:hou2019learning"

    class Options(ExemplarOptions):
        """Options of LUCIR."""

        tuning_grid: ClassVar[TuningGrid] = {"less_forget": (2.0, 5.0, 10.0), "learning_rate": LEARNING_RATES}

        less_forget: NonNegativeFloat = Field(
            5.0, description="weight of the cosine distance to earlier features, times sqrt(old / new classes)"
        )

    options: Options

    @classmethod
    def make_model(cls, context: StrategyContext) -> BackboneModel:
        """Return the chosen backbone under a head of cosines."""
        model = super().make_model(context)
        model.heads = nn.ModuleList([CosineHead(model.features, model.classes_per_task)])
        return model

    def setup(self) -> None:
        """Begin as the base; features and cosines are those of the present batch."""
        super().setup()
        self._features = self._cosines = torch.empty(0)

    @property
    def cosine_head(self) -> CosineHead:
        """The head."""
        return cast(CosineHead, self.network.head(0))

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Return imprinting, from the second task on, training, and the choice of exemplars."""
        imprinting = [self.step("imprinting", task, self.imprint)] if len(self.memory) else []
        return [*imprinting, *super().phases(task)]

    def imprint(self, task: TaskData) -> None:
        """Have the embedding of each new class begin as its mean feature, as long as those of old classes are."""
        old, new = self.earlier, self.network.classes_seen - self.earlier
        sums = torch.zeros(old + new, self.network.features, device=self.device)
        with self.measuring(), torch.no_grad():
            for x, y in self.counted(task.train):
                sums.index_add_(0, y, self.features(x))
            if new:
                *earlier, present = (part.weight for part in self.cosine_head.begun)
                length = torch.cat(earlier).norm(dim=1).mean()
                there = sums[old:].norm(dim=1, keepdim=True) > 0  # a class may have no image
                present.copy_(torch.where(there, length * normalize(sums[old:], dim=1), present))

    def forward(self) -> Tensor:
        """Keep features and cosines in training, for the loss."""
        if not self.is_training:
            return super().forward()
        self._features = self.network.backbone_features(self.mb_x)
        self._cosines = self.cosine_head.cosines(self._features)
        return self.cosine_head.scale * self._cosines

    def batch_loss(self, x: Tensor, y: Tensor, task: Tensor, logits: Tensor) -> Tensor:
        """Return cross-entropy, from the second task on with the distance to earlier features and the margin loss."""
        loss, old = cross_entropy(logits, y), self.earlier
        if not self.teacher:
            return loss
        turned = 1 - cosine_similarity(self._features, self.ask_teacher(x, "backbone")).mean()
        weight = self.options.less_forget * math.sqrt(old / self.present)
        return loss + weight * turned + margin_loss(self._cosines, y, old)


class CosineHead(PartedHead):
    """A head of embeddings of classes ``w``: ``scale * cos(w, f)`` of features; earlier tasks' embeddings stay."""

    def __init__(self, features: int, classes: Sequence[int]) -> None:
        super().__init__(features, classes)
        for part in self.parts.values():
            part.register_parameter("bias", None)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, features: Tensor) -> Tensor:
        """Logits ``[N, seen]`` of features ``[N, F]``."""
        return self.scale * self.cosines(features)

    def cosines(self, features: Tensor) -> Tensor:
        """Cosines ``[N, seen]``; gradients are those of the present task's embeddings."""
        weights = [part.weight for part in self.begun]
        is_new = str(self.tasks - 1) in self.parts  # otherwise the task adds no class
        rows = torch.cat([*(it.detach() for it in weights[: len(weights) - is_new]), *weights[len(weights) - is_new :]])
        return linear(normalize(features.to(rows.dtype), dim=1), normalize(rows, dim=1))


def margin_loss(cosines: Tensor, labels: Tensor, old: int) -> Tensor:
    """Return the mean of what the cosines ``[N, C]`` of images of the first ``old`` classes fall short of the margin
    between their own class and each of the nearest new ones; 0 where there is none."""
    nearest = cosines[:, old:].topk(min(NEAREST, cosines.shape[1] - old), dim=1).values
    short = relu(MARGIN - cosines.gather(1, labels[:, None]) + nearest)
    is_old = (labels < old).to(short)
    return (is_old[:, None] * short).sum() / (is_old.sum() * nearest.shape[1]).clamp(min=1)
