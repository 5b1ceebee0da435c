"""DER: dynamically expandable representation (Yan et al., CVPR 2021), without its pruning."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, cast

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from seu_bench.data import TaskImages
from seu_bench.data.avalanche import MixedBatches
from seu_bench.models import BackboneModel, freeze, is_frozen
from seu_bench.models.multihead import not_learned
from seu_bench.training import Phase, StrategyContext, TaskData, TrainingStage
from seu_bench_methods.exemplars import ExemplarOptions, Exemplars


class ExpandingModel(BackboneModel):
    """Networks side by side, one for each task, whose features are joined, and one classifier of all classes seen.

    Args:
        shared: samples ``[N, ...]`` -> what each network gets.
        network: the first one, ``[N, ...]`` -> features ``[N, features]``; later ones begin as copies of the newest.
        features: width of its output.
        classes: number of classes that each task adds.

    Attributes:
        backbone: the networks; all but the newest are frozen, in evaluation mode.
        heads: the classifier, once a task was begun.
        auxiliary: classifier of the newest network's features alone, while a task after the first trains: one output
            for all old classes, then the new ones.
    """

    backbone: nn.ModuleList
    auxiliary: nn.Linear | None

    def __init__(self, shared: nn.Module, network: nn.Module, features: int, classes: Sequence[int]) -> None:
        super().__init__(nn.ModuleList([network]), features, classes, "class")
        self.shared, self.heads = shared, nn.ModuleList()
        self.register_module("auxiliary", None)

    @property
    def classes_seen(self) -> int:
        """Number of classes that the classifier tells apart."""
        return cast(nn.Linear, self.heads[0]).out_features if self.heads else 0

    def begin_task(self, task: int) -> None:
        """Do nothing: :meth:`expand` begins a task."""

    def expand(self) -> None:
        """Add a network and outputs for the next task. The classifier keeps its weights; those of new outputs, and of
        all outputs for new features, are drawn from the global generator."""
        device = next((it.device for it in self.parameters()), torch.device("cpu"))
        if self.heads:
            self.backbone.append(copy.deepcopy(self.backbone[-1]).requires_grad_(True))
        classes, width = sum(self.classes_per_task[: len(self.backbone)]), self.features * len(self.backbone)
        head, old = nn.Linear(width, classes), self.classes_seen
        if self.heads:
            known = cast(nn.Linear, self.heads.pop(0)).cpu()
            with torch.no_grad():
                head.weight[:old, : known.in_features], head.bias[:old] = known.weight, known.bias
            self.auxiliary = nn.Linear(self.features, classes - old + 1).to(device)
        self.heads.append(head.to(device))

    def seal(self) -> None:
        """Freeze the newest network, and drop the auxiliary classifier."""
        freeze(self.backbone)
        self.auxiliary = None

    def train(self, mode: bool = True) -> Self:
        """Set the mode; frozen networks stay in evaluation mode."""
        super().train(mode)
        for network in self.backbone:
            network.train(mode and not is_frozen(network))
        return self

    def backbone_features(self, images: Tensor) -> Tensor:
        """Joined features ``[N, features * networks]``, those of the newest network last."""
        shared = self.shared(images)
        return torch.cat([network(shared) for network in self.backbone], dim=1)

    def auxiliary_loss(self, features: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy of the auxiliary classifier, on joined features ``[N, F]`` and labels ``[N]``."""
        if self.auxiliary is None:
            return features.new_zeros(())
        old = self.classes_seen - self.auxiliary.out_features + 1
        return cross_entropy(self.auxiliary(features[:, -self.features :]), (labels - old + 1).clamp(min=0))

    def forward_single_task(self, x: Tensor, task_label: int) -> Tensor:
        """Logits ``[N, classes seen]``.

        Raises:
            RunError: no task was begun yet.
        """
        if not self.heads:
            raise not_learned(task_label, "classifier")
        return super().forward_single_task(x, task_label)

    def task_module(self, task: int) -> nn.Module:
        """All of it."""
        return nn.ModuleList([self.shared, self.backbone, self.heads])

    def trainable_module(self, task: int) -> nn.Module:
        """What is shared, the newest network until it is frozen, and the classifiers."""
        parts = [self.shared, self.backbone[-1], *self.heads, self.auxiliary]
        return nn.ModuleList([it for it in parts if it is not None and not is_frozen(it)])

    def architecture(self) -> dict[str, Any]:
        """The number of networks with a classifier, and whether there is an auxiliary one."""
        return {"networks": len(self.backbone) if self.heads else 0, "auxiliary": self.auxiliary is not None}

    def load_architecture(self, architecture: Mapping[str, Any]) -> None:
        """Expand a new model as often.

        Raises:
            ValueError: there are more networks than tasks.
        """
        networks = int(architecture["networks"])
        if not 0 <= networks <= len(self.classes_per_task) or self.heads:
            raise ValueError(f"{networks} networks do not fit {len(self.classes_per_task)} tasks")
        for _ in range(networks):
            self.expand()
        if not architecture["auxiliary"]:
            self.auxiliary = None


class Expanding(Exemplars):
    """Base of methods with a network for each task beside frozen ones, and a classifier of the features of all.

    New images and exemplars are learned by the cross-entropy of the classifier and that of an auxiliary one, which has
    the new network's features alone and takes all old classes for one.
    """

    model: ExpandingModel

    @classmethod
    def make_model(cls, context: StrategyContext) -> ExpandingModel:
        """Return the chosen backbone as the first network, and no classifier yet."""
        first = super().make_model(context)
        return ExpandingModel(nn.Identity(), first.backbone, first.features, first.classes_per_task)

    def setup(self) -> None:
        """Begin without exemplars."""
        super().setup()
        self._features: Tensor | None = None  # of the present batch

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Return the expansion, training, after which the network is frozen, balancing and the choice of exemplars."""
        training, exemplars = super().phases(task)
        expansion = self.step("expansion", task, lambda _: self.model.expand())
        balancing = [self.balancing(task)] if task.index else []
        return [expansion, replace(training, apply=lambda _: self.model.seal()), *balancing, exemplars]

    @abstractmethod
    def balancing(self, task: TaskData) -> Phase:
        """Return what makes old and new classes equals in the classifier, after each task but the first."""

    def trained_module(self, task: TaskData) -> nn.Module:
        """Return what is not frozen."""
        return self.model.trainable_module(task.index)

    def forward(self) -> Tensor:
        """Logits of the present batch; in training its features are kept for the auxiliary classifier."""
        if not self.is_training:
            return super().forward()
        self._features = self.model.backbone_features(self.mb_x)
        logits: Tensor = self.model.heads[0](self._features)
        return logits

    def batch_loss(self, x: Tensor, y: Tensor, task: Tensor, logits: Tensor) -> Tensor:
        """Return the cross-entropy of the classifier and of the auxiliary one, if there is one."""
        features, self._features = self._features, None
        loss = cross_entropy(logits, y)
        return loss if features is None else loss + self.model.auxiliary_loss(features, y)


class Der(Expanding):
    """A network for each task beside frozen ones, and a classifier of all features (DER without pruning, Yan et al.
    2021).

    After a task's training the classifier is drawn anew and trained alone on as many images of each class, its logits
    divided by a temperature.
    """

    name = "der"
    title = "DER"
    citation = "seu_bench_kit:yan2021der"

    class Options(ExemplarOptions):
        """Options of DER."""

        balanced_epochs: PositiveInt | None = Field(
            None,
            description="epochs of the classifier on as many images of each class; not set: those of training, at most "
            "30 (published code: 30 of 170)",
        )
        temperature: PositiveFloat = Field(5.0, description="by which its logits are divided then")

    def setup(self) -> None:
        """Begin without exemplars."""
        super().setup()
        self.divisor = 1.0  # of logits in training

    def balancing(self, task: TaskData) -> Phase:
        """Return the training of a classifier that is drawn anew."""
        return Phase(lambda: self._begin_balancing(task), lambda _: self._divide_by(1.0))

    def batch_loss(self, x: Tensor, y: Tensor, task: Tensor, logits: Tensor) -> Tensor:
        """Return the same, of logits divided by the temperature where the classifier trains alone."""
        return super().batch_loss(x, y, task, logits / self.divisor)

    def _begin_balancing(self, task: TaskData) -> TrainingStage:
        self._divide_by(self.options.temperature)
        head = cast(nn.Linear, self.model.heads[0])
        with self.drawing("classifier", task):
            head.load_state_dict(nn.Linear(head.in_features, head.out_features).state_dict())
        schedule = self.schedule.of_epochs(self.options.balanced_epochs or min(self.schedule.epochs, 30))
        stage = TrainingStage(self, task, "balancing", schedule)
        self.dataloader = MixedBatches(balanced(self.training_images(task)), self.train_mb_size)
        return stage

    def _divide_by(self, divisor: float) -> None:
        self.divisor = divisor


def balanced(tables: Sequence[TaskImages]) -> list[TaskImages]:
    """Return of each class its first images in the tables, as many as there are of the rarest."""
    labels = torch.cat([table.labels.cpu() for table in tables])
    least = min(count for count in labels.bincount().tolist() if count)
    kept = torch.zeros_like(labels, dtype=torch.bool)
    for label in labels.unique():
        kept[(labels == label).nonzero().flatten()[:least]] = True
    parts = kept.split([len(table) for table in tables])
    return [table.subset(part.nonzero().flatten().to(table.device)) for table, part in zip(tables, parts, strict=True)]
