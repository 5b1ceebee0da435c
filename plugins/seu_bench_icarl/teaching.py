"""Distillation: what the network said of earlier classes before a task, and training on new images and exemplars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, one_hot

from seu_bench.data import BatchLoader, TaskImages, batch_bounds
from seu_bench.models import modes_kept
from seu_bench.training import EpochlessStage
from seu_bench_icarl.exemplars import computed
from seu_bench_icarl.model import ExemplarModel


def distillation_loss(logits: Tensor, labels: Tensor, taught: Tensor | None) -> Tensor:
    """Binary cross-entropy of each class seen, summed over classes, mean over images (paper, algorithm 3).

    Args:
        logits: ``[N, classes seen]``.
        labels: ``[N]``.
        taught: targets ``[N, classes before]`` of the earlier classes, for images of all classes: probabilities by the
            network as it was before the task; ``None``: there are no earlier classes.

    Returns:
        A scalar.
    """
    targets = one_hot(labels, logits.shape[1]).to(logits.dtype)
    if taught is not None:
        targets[:, : taught.shape[1]] = taught
    return binary_cross_entropy_with_logits(logits, targets, reduction="sum") / len(labels)


def with_exemplars(images: TaskImages, exemplars: Sequence[Tensor]) -> TaskImages:
    """The images of a task and, behind them, exemplars ``[m, C, H, W]`` of each earlier class, as one split."""
    if not exemplars:
        return images
    store, labels = images.gather(torch.arange(len(images)))
    earlier = torch.repeat_interleave(torch.tensor([len(part) for part in exemplars]))
    together = torch.cat([store, *exemplars])
    rows = torch.arange(len(together), device=store.device)
    all_labels = torch.cat([labels, earlier.to(labels)])
    hidden, augmenter = images.hides_task, images.augmenter
    return TaskImages(
        together, rows, all_labels, images.task, together.shape[1], hides_task=hidden, augmenter=augmenter
    )


class TeachingStage(EpochlessStage[Tensor]):
    """Passes all images of a task and all exemplars once through the network, before any of them changes it.

    The result are the targets of the earlier classes, ``[N, classes before]``: of those that come back with the task
    the labels themselves, since they are learned again.

    Args:
        model: in evaluation mode here; its head answers.
        images: of the task and exemplars.
        classes: number of classes before the task.
        task_classes: ``[n]``, the classes of the task's own images.
        batch_size: of the passes.
        seed: of the stage, which draws nothing.
        device: to compute on.
    """

    def __init__(
        self,
        model: ExemplarModel,
        images: TaskImages,
        *,
        classes: int,
        task_classes: Tensor,
        batch_size: int,
        seed: int,
        device: torch.device,
    ) -> None:
        super().__init__("teaching", images.task, seed, device)
        self.model = model
        self.images = images
        self.classes = classes
        self.task_classes = task_classes
        self.batch_size = batch_size

    def result(self) -> Tensor:
        """Probabilities of the earlier classes."""
        with modes_kept(self.model), torch.no_grad():
            self.model.eval()
            batches = (x for x, _ in self.images.batches(self.batch_size, shuffle=False))
            logits = torch.cat(computed(self.model.network_logits, batches, self.passed))
        targets = logits[:, : self.classes].float().sigmoid()
        again = self.task_classes[self.task_classes < self.classes]
        targets[:, again] = one_hot(self.images.labels, logits.shape[1])[:, again].to(targets)
        return targets


class TaughtLoader(BatchLoader):
    """Shuffled batches ``[x, y, targets of earlier classes, t]``; a new order for each iteration.

    Args:
        images: of one task, and exemplars.
        batch_size: images per batch; a single image left over joins the batch before it.
        taught: ``[len(images), classes before]``, on the device of the images.
    """

    def __init__(self, images: TaskImages, batch_size: int, taught: Tensor) -> None:
        super().__init__(images, batch_size, shuffle=True)
        self.taught = taught

    def __iter__(self) -> Iterator[list[Tensor]]:
        task = torch.tensor([self.images.task_label])
        order = torch.randperm(len(self.images))
        for start, stop in batch_bounds(len(order), self.batch_size, join=True):
            here = order[start:stop].to(self.images.device)
            x, y = self.images.training_batch(here)
            yield [x, y, self.taught[here], task.expand(len(y))]
