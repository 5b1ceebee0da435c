"""iCaRL (S.-A. Rebuffi et al., "iCaRL: Incremental Classifier and Representation Learning", CVPR 2017)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from pydantic import Field, PositiveFloat, StrictBool
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, linear, normalize, one_hot

from seu_bench.config import TuningGrid
from seu_bench.training import Phase, TaskData
from seu_bench_methods.exemplars import ExemplarOptions, Exemplars


class Icarl(Exemplars):
    """Distillation, a herded memory, and the nearest mean of exemplars answers (iCaRL, Rebuffi et al. 2017).

    The loss is the binary cross-entropy, mean over the classes seen (of which algorithm 3 has the sum). Targets of
    earlier classes are what the network said of them before the task, of new images and exemplars alike; those that
    come back with the task are learned from labels again. Then exemplars are chosen by herding (algorithms 4 and 5),
    and the class answers whose exemplars' mean feature is nearest (algorithm 1).
    """

    name = "icarl"
    title = "iCaRL"
    citation = "seu_bench_kit:rebuffi2017icarl"

    class Options(ExemplarOptions):
        """Options of iCaRL."""

        tuning_grid: ClassVar[TuningGrid] = {"learning_rate": (0.01, 0.03, 0.1, 0.3)}
        removed: ClassVar[Mapping[str, Any]] = {"rate_steps": False}

        learning_rate: PositiveFloat | None = Field(
            0.1, description="of the first epoch; a mean over classes has smaller gradients than the losses of others"
        )
        mirror: StrictBool = Field(
            True, description="means of exemplars are those of their features and of their mirror images' features"
        )

        def identity(self) -> dict[str, Any]:
            """Leave out the memory where it is 2000, the default until it was the same for all methods."""
            own = {"memory": self.memory} if self.memory != 2000 else {}
            return {key: value for key, value in super().identity().items() if key != "memory"} | own

    options: Options

    def setup(self) -> None:
        """Begin without exemplars, means and targets."""
        super().setup()
        self.targets: Tensor | None = None  # [N, earlier classes], while a task after the first is learned
        self.buffer("means", torch.zeros(sum(self.plan.classes_per_task), self.network.features))

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Return teaching, from the second task on, training, and the choice of exemplars."""
        teaching = [self.step("teaching", task, self.teach)] if len(self.memory) else []
        return [*teaching, *super().phases(task)]

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
        here = self.batch_positions.to(self.device, non_blocking=True)
        return distillation_loss(logits.float(), y, None if self.targets is None else self.targets[here])

    def after_task(self, task: TaskData) -> None:
        """Choose exemplars, and compute the mean of each class from them, brought to length 1."""
        self.targets = None
        super().after_task(task)
        means: Tensor = self.network.get_buffer("means")
        with self.measuring(), torch.no_grad():
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


def distillation_loss(logits: Tensor, labels: Tensor, known: Tensor | None) -> Tensor:
    """Return the binary cross-entropy (algorithm 3), mean over classes seen and images.

    Args:
        logits: ``[N, classes seen]``.
        labels: ``[N]``.
        known: targets ``[N, earlier classes]`` of the earlier classes; ``None``: there are none.
    """
    # one_hot would look at the labels first, and wait for an accelerator.
    targets = torch.zeros_like(logits).scatter_(1, labels[:, None], 1.0)
    if known is not None:
        targets[:, : known.shape[1]] = known
    return binary_cross_entropy_with_logits(logits, targets)
