"""iCaRL (S.-A. Rebuffi et al., "iCaRL: Incremental Classifier and Representation Learning", CVPR 2017)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from pydantic import Field, PositiveInt, StrictBool
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, linear, normalize, one_hot

from seu_bench import Herded, Method
from seu_bench.config import LEARNING_RATES, BackboneOptions, TuningGrid
from seu_bench.data import TaskImages
from seu_bench.errors import RequestError
from seu_bench.models import BackboneModel
from seu_bench.training import Phase, StrategyContext, TaskData, backbone_model


class Icarl(Method):
    """Distillation, a herded memory, and the nearest mean of exemplars answers (iCaRL, Rebuffi et al. 2017).

    The loss is the binary cross-entropy of each class seen (algorithm 3). Targets of earlier classes are what the
    network said of them before the task, of new images and exemplars alike; those that come back with the task are
    learned from labels again. Then exemplars are chosen by herding (algorithms 4 and 5), and the class answers whose
    exemplars' mean feature is nearest (algorithm 1).
    """

    name = "icarl"
    scenarios = ("class",)
    after_task_stage = "exemplars"
    check_options = {"memory": 12}

    class Options(BackboneOptions):
        """Options of iCaRL."""

        tuning_grid: ClassVar[TuningGrid] = {"learning_rate": LEARNING_RATES}
        removed: ClassVar[Mapping[str, Any]] = {"rate_steps": False}

        memory: PositiveInt = Field(200, description="images kept of all classes together, at most")
        mirror: StrictBool = Field(
            True, description="means of exemplars are those of their features and of their mirror images' features"
        )

        def identity(self) -> dict[str, Any]:
            """Leave out the memory where it is 2000, the default until it was the same for all methods."""
            own = {"memory": self.memory} if self.memory != 2000 else {}
            return {key: value for key, value in super().identity().items() if key != "memory"} | own

    options: Options

    @classmethod
    def make_model(cls, context: StrategyContext) -> BackboneModel:
        """Return the chosen backbone, all of which trains, under a head that grows.

        Raises:
            RequestError: there are more classes than exemplars, or the backbone does not fit the stream's images.
        """
        memory, classes = context.options.memory, sum(context.plan.classes_per_task)
        if memory < classes:
            raise RequestError(
                f"{classes} classes have no exemplar each in a memory of {memory}",
                where=f"-o memory={memory}",
                remedy=f"give {classes} at least; a class without exemplars is never the answer",
            )
        return backbone_model(context, may_be_frozen=False)

    def setup(self) -> None:
        """Begin without exemplars, means and targets."""
        self.memory = Herded(self.options.memory)
        self.targets: Tensor | None = None  # [N, earlier classes], while a task after the first is learned
        self.buffer("means", torch.zeros(sum(self.plan.classes_per_task), self.network.features))

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Return teaching, from the second task on, training, and the choice of exemplars."""
        teaching = [self.step("teaching", task, self.teach)] if len(self.memory) else []
        return [*teaching, *super().phases(task)]

    def training_images(self, task: TaskData) -> list[TaskImages]:
        """Return the task's images and, behind them, the exemplars, class by class."""
        return [task.train, *self.memory.tables()]

    def teach(self, task: TaskData) -> None:
        """Ask the network, before anything changes it, how likely the earlier classes are in all images to train on."""
        earlier = sum(self.plan.classes_per_task[: task.index])
        tables = [table.gather(torch.arange(len(table))) for table in self.training_images(task)]
        x, y = map(torch.cat, zip(*tables, strict=True))
        with self.measuring(), torch.no_grad():
            logits = self.by_batch(lambda images: self.network.logits(images, 0), x)
        targets = logits[:, :earlier].float().sigmoid()
        labels = task.train.labels.unique()
        again = labels[labels < earlier]
        targets[:, again] = one_hot(y, logits.shape[1])[:, again].to(targets)
        self.targets = targets

    def batch_loss(self, x: Tensor, y: Tensor, task: Tensor, logits: Tensor) -> Tensor:
        """Return the distillation loss of the batch, with the targets of its images."""
        targets = None if self.targets is None else self.targets[self.batch_positions.to(self.targets.device)]
        return distillation_loss(logits.float(), y, targets)

    def after_task(self, task: TaskData) -> None:
        """Choose exemplars, and compute the mean of each class from them, brought to length 1."""
        self.targets = None
        means: Tensor = self.network.get_buffer("means")
        with self.measuring(), torch.no_grad():
            self.memory.add_images(task.train, lambda images: self.by_batch(self.features, images))
            known = self.memory.all_images()
            mirrors = self.options.mirror and known.x.dim() == 4
            versions = [known.x, known.x.flip(dims=(3,))] if mirrors else [known.x]
            features = [self.by_batch(self.features, images) for images in versions]
            for label in known.y.unique():
                means[label] = normalize(torch.cat([rows[known.y == label] for rows in features]).mean(dim=0), dim=0)

    def predict(self, x: Tensor, task: int) -> Tensor:
        """Return minus the squared distance to the mean of each class seen, less a constant; ``[N, classes seen]``."""
        # |f - m|^2 = |f|^2 - 2 f.m + |m|^2, and |f| = 1; a class without exemplars has no mean to be near to.
        means = self.network.get_buffer("means")[: self.network.classes_seen]
        squares = means.square().sum(dim=1)
        offsets = torch.where(squares > 0, -squares, torch.finfo(squares.dtype).min)
        return linear(self.features(x), 2 * means, offsets)

    def features(self, x: Tensor) -> Tensor:
        """Return features ``[N, F]`` of length 1, in the precision of the means: that of layers may be lower."""
        means: Tensor = self.network.get_buffer("means")
        return normalize(self.network.backbone_features(x).to(means.dtype), dim=1)

    def by_batch(self, forward: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Return outputs ``[N, ...]`` of images, in batches that count as passed."""
        found = []
        for images in x.split(self.eval_mb_size):
            found.append(forward(images))
            self.count_images(len(images))
        return torch.cat(found)


def distillation_loss(logits: Tensor, labels: Tensor, known: Tensor | None) -> Tensor:
    """Return the binary cross-entropy of each class seen, summed over classes, mean over images (algorithm 3).

    Args:
        logits: ``[N, classes seen]``.
        labels: ``[N]``.
        known: targets ``[N, earlier classes]`` of the earlier classes; ``None``: there are none.
    """
    targets = one_hot(labels, logits.shape[1]).to(logits.dtype)
    if known is not None:
        targets[:, : known.shape[1]] = known
    return binary_cross_entropy_with_logits(logits, targets, reduction="sum") / len(labels)
