"""CWR* (V. Lomonaco et al., "Rehearsal-Free Continual Learning over Small Non-I.I.D. Batches", CVPR Workshops 2020)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seu_bench import Method
from seu_bench.config import BackboneOptions
from seu_bench.models import freeze
from seu_bench.models.backbone import PartedHead
from seu_bench.training import TaskData


class Cwr(Method):
    """CWR*: the backbone learns on the first task, later ones train a head (Lomonaco et al. 2020).

    A task trains the weights of its classes from zero, or from where they were left, next to zeros for all others.
    Afterwards they have the mean of all of them subtracted, and are merged with what earlier tasks left of the same
    class: ``w <- (r w + w_new) / (r + 1)``, with ``r`` the root of earlier images by new ones. Biases are shared. A
    head of a single task consolidates its own classes alone.
    """

    name = "cwr"
    title = "CWR*"
    citation = "seu_bench_kit:lomonaco2020rehearsal"
    check_options = {"backbone": "mlp", "epochs": 20}

    class Options(BackboneOptions):
        """Options of CWR*, which are those of the backbone."""

    def setup(self) -> None:
        """Begin with no class seen."""
        self.images_seen: list[int] = []  # by class of the head
        self.consolidated = torch.empty(0)

    def before_task(self, task: TaskData) -> None:
        """Freeze the backbone after the first task; set the weights of the task's classes, and no others."""
        weight = self._weight(task)
        if task.index:
            freeze(self.network.backbone)
        if self.network.scenario == "task":
            self.images_seen = []
        self.images_seen += [0] * (len(weight) - len(self.images_seen))
        kept = torch.tensor(self.images_seen, device=weight.device) > 0
        self.consolidated = weight * kept[:, None]
        self._set_weight(task, self.consolidated * (self._count(task) > 0)[:, None])

    def trained_module(self, task: TaskData) -> nn.Module:
        """The task's path: other heads are done."""
        return self.model.trainable_module(task.index)

    def training_mode(self) -> None:
        """Leave the backbone in evaluation mode after the first task."""
        super().training_mode()
        if self.learned:
            self.network.backbone.eval()

    def after_task(self, task: TaskData) -> None:
        """Merge the weights of the task's classes with those consolidated before, which come back for all others."""
        weight, new = self._weight(task), self._count(task)
        old = torch.tensor(self.images_seen, device=weight.device)
        here, ratio = (new > 0)[:, None], (old / new.clamp(min=1)).sqrt()[:, None]
        centred = weight - weight[new > 0].mean()
        merged = torch.where(here, (ratio * self.consolidated + centred) / (ratio + 1), self.consolidated)
        self._set_weight(task, merged)
        self.images_seen, self.consolidated = (old + new).tolist(), torch.empty(0)

    def _parts(self, task: TaskData) -> list[Tensor]:
        head = self.network.head(task.index)
        return [it.get_parameter("weight") for it in (head.begun if isinstance(head, PartedHead) else [head])]

    def _weight(self, task: TaskData) -> Tensor:
        """A copy of the head's weights ``[classes, F]``."""
        return torch.cat(self._parts(task)).detach()

    def _set_weight(self, task: TaskData, weight: Tensor) -> None:
        parts = self._parts(task)
        with torch.no_grad():
            for part, rows in zip(parts, weight.split([len(it) for it in parts]), strict=True):
                part.copy_(rows)

    def _count(self, task: TaskData) -> Tensor:
        return torch.bincount(task.train.labels, minlength=len(self._weight(task))).to(self.device)
