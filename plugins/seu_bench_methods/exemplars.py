"""Bases of methods that keep herded exemplars of each class (S.-A. Rebuffi et al., "iCaRL", CVPR 2017)."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

import torch
from pydantic import Field, PositiveInt
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import cross_entropy, normalize, softmax

from seu_bench import Herded, Method
from seu_bench.config import LEARNING_RATES, BackboneOptions, TuningGrid
from seu_bench.data import TaskImages
from seu_bench.errors import RequestError
from seu_bench.models import BackboneModel
from seu_bench.training import StrategyContext, TaskData, backbone_model

#: By which logits are divided before they are distilled.
TEMPERATURE: Final = 2.0


class ExemplarOptions(BackboneOptions):
    """Options of a method that keeps exemplars."""

    tuning_grid: ClassVar[TuningGrid] = {"learning_rate": LEARNING_RATES}

    memory: PositiveInt = Field(200, description="images kept of all classes together, at most")


class Exemplars(Method):
    """Base of methods whose one head grows, and that train on exemplars beside each task's images.

    Exemplars are chosen behind each task by herding (algorithms 4 and 5), by features of length 1 of the network as it
    then is, in evaluation mode.

    Attributes:
        least: exemplars that each class needs.
    """

    Options = ExemplarOptions
    scenarios = ("class",)
    after_task_stage = "exemplars"
    check_options = {"memory": 12}
    least: ClassVar[int] = 1

    @classmethod
    def make_model(cls, context: StrategyContext) -> BackboneModel:
        """Return the chosen backbone, all of which trains, under a head that grows.

        Raises:
            RequestError: there are too few exemplars, or the backbone does not fit the stream's images.
        """
        memory, classes = context.options.memory, sum(context.plan.classes_per_task)
        if memory < cls.least * classes:
            raise RequestError(
                f"{classes} classes have no {'exemplar' if cls.least == 1 else f'{cls.least} exemplars'} each in a "
                f"memory of {memory}",
                where=f"-o memory={memory}",
                remedy=f"give {cls.least * classes} at least; a class without exemplars is never the answer",
            )
        return backbone_model(context, may_be_frozen=False)

    def setup(self) -> None:
        """Begin without exemplars."""
        self.memory = Herded(self.options.memory)

    def training_images(self, task: TaskData) -> list[TaskImages]:
        """Return the task's images and, behind them, the exemplars, class by class."""
        return [task.train, *self.memory.tables()]

    def after_task(self, task: TaskData) -> None:
        """Choose exemplars."""
        with self.measuring(), torch.no_grad():
            self.memory.add_images(task.train, lambda images: self.by_batch(self.features, images))

    def features(self, x: Tensor) -> Tensor:
        """Return features ``[N, F]`` of length 1, in the precision of the weights: that of layers may be lower."""
        precision = next(self.network.heads.parameters()).dtype
        return normalize(self.network.backbone_features(x).to(precision), dim=1)

    def by_batch(self, forward: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Return outputs ``[N, ...]`` of images, in batches that count as passed."""
        found = []
        for images in x.split(self.eval_mb_size):
            found.append(forward(images))
            self.count_images(len(images))
        return torch.cat(found)


class TaughtExemplars(Exemplars):
    """The same with a teacher: the network as it was before the task, frozen. Between tasks it would be the network
    itself, so that it is not kept."""

    def setup(self) -> None:
        """Begin without exemplars and a teacher."""
        super().setup()
        self.teacher: dict[str, Tensor] = {}

    @property
    def earlier(self) -> int:
        """Number of classes of the tasks learned so far."""
        return sum(self.plan.classes_per_task[: self.learned])

    @property
    def present(self) -> int:
        """Number of classes of the task that is learned, those that come back among them."""
        task = self.plan.tasks[self.learned]
        return len(task.labels or range(task.num_classes))

    def before_task(self, task: TaskData) -> None:
        """Have the network teach itself, from the second task on."""
        if self.learned:
            self.teacher = {name: it.clone() for name, it in self.model.state_dict().items()}

    def ask_teacher(self, x: Tensor, part: str = "") -> Tensor:
        """Return what the teacher computes of images in evaluation mode, without gradients, and count them as passed.

        Args:
            x: ``[N, C, H, W]``.
            part: ``backbone`` for its features ``[N, F]``; by default its answers ``[N, earlier classes]``.
        """
        module, prefix = self.model.get_submodule(part), f"{part}." if part else ""
        weights = {name.removeprefix(prefix): it for name, it in self.teacher.items() if name.startswith(prefix)}
        with torch.no_grad(), self.measuring():
            found: Tensor = functional_call(module, weights, (x,) if part else (x, 0))
        self.count_images(len(x))
        return found if part else found[:, : self.earlier].float()

    def distilled_loss(self, x: Tensor, y: Tensor, logits: Tensor) -> Tensor:
        """Return ``(1 - l) CE(y, logits) + l CE(softmax(t / T), logits / T)`` with the teacher's answers t for the
        earlier classes, T = 2 and l the share of classes that are not the task's; without a teacher the first alone.

        Args:
            x: images ``[N, C, H, W]``.
            y: labels ``[N]``.
            logits: ``[N, classes seen]``.
        """
        loss = cross_entropy(logits, y)
        if not self.teacher:
            return loss
        old, taught = self.earlier, softmax(self.ask_teacher(x) / TEMPERATURE, dim=1)
        share = 1 - self.present / logits.shape[1]
        return (1 - share) * loss + share * cross_entropy(logits[:, :old] / TEMPERATURE, taught)

    def after_task(self, task: TaskData) -> None:
        """Choose exemplars, and let the teacher go."""
        self.teacher = {}
        super().after_task(task)
