"""Herding: exemplars whose mean feature stays near that of their class, and the means of exemplars that answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import normalize

from seu_bench.data import TaskImages
from seu_bench.models import RepeatedBatches, modes_kept
from seu_bench.training import EpochlessStage
from seu_bench_icarl.model import ExemplarModel


def herded(features: Tensor, count: int) -> Tensor:
    """Choose images whose mean feature is near that of all, one after another.

    Args:
        features: ``[n, F]``, of length 1.
        count: how many; fewer where there are not so many.

    Returns:
        ``[min(count, n)]`` positions in the order in which they were chosen: each makes the mean of those chosen so far
        as near to the mean of all as it can (algorithm 4 of the paper). No image is chosen twice.

    Example:
        ``herded(torch.eye(3), 2)``
    """
    mean = features.mean(dim=0)
    chosen: list[int] = []
    missing = torch.zeros_like(mean)  # k times the mean, less the sum of those chosen
    squares = features.square().sum(dim=1)
    for _ in range(min(count, len(features))):
        missing = missing + mean
        # |missing - f|^2 less |missing|^2, which is the same for all: one product in place of all differences.
        distances = squares - 2 * (features @ missing)
        best = int(distances.argmin())
        chosen.append(best)
        missing = missing - features[best]
        squares[best] = torch.inf
    return torch.tensor(chosen, dtype=torch.int64)


def computed(
    forward: Callable[[Tensor], Tensor], batches: Iterable[Tensor], on_batch: Callable[[int], None]
) -> list[Tensor]:
    """Outputs of a network for batches that cost the same per image; the caller has set the mode, and no gradients.

    Args:
        forward: images ``[N, C, H, W]`` -> outputs ``[N, ...]``.
        batches: of images.
        on_batch: called with the number of images of each batch.

    Returns:
        The outputs of each batch.
    """
    found = []
    with RepeatedBatches() as repeated:
        for batch in batches:
            repeated.begin()
            found.append(forward(batch))
            repeated.end(len(batch))
            on_batch(len(batch))
    return found


def nearest_means(parts: Sequence[Tensor]) -> Tensor:
    """Means of features of length 1, themselves brought to length 1.

    Args:
        parts: features ``[n, F]`` of the exemplars of each class, in one or two versions one below the other.

    Returns:
        ``[classes, F]``; 0 for a class without exemplars.
    """
    return torch.stack([normalize(part.mean(dim=0), dim=0) if len(part) else part.sum(dim=0) for part in parts])


class ExemplarStage(EpochlessStage[tuple[list[Tensor], Tensor]]):
    """Chooses the exemplars of a task's classes, drops the last ones of earlier classes, and computes all means.

    Those of an earlier class that comes back are chosen anew, among its images and those that were kept.

    The result are the images of each class ``[m, C, H, W]`` in the order of their importance, and the means
    ``[classes, F]``. Before new exemplars join, those of earlier classes are fewer already: there are never more than
    ``memory``.

    Args:
        model: in evaluation mode here, as it answers.
        images: training images of the task.
        known: exemplars of each earlier class.
        classes: number of classes seen, those of the task included.
        memory: exemplars in all, at most.
        mirror: whether means take in mirror images.
        batch_size: of the passes.
        seed: of the stage, which draws nothing.
        device: to compute on.
    """

    def __init__(
        self,
        model: ExemplarModel,
        images: TaskImages,
        known: Sequence[Tensor],
        *,
        classes: int,
        memory: int,
        mirror: bool,
        batch_size: int,
        seed: int,
        device: torch.device,
    ) -> None:
        super().__init__("exemplars", images.task, seed, device)
        self.model = model
        self.images = images
        self.known = known
        self.classes = classes
        self.each = memory // classes
        self.mirror = mirror
        self.batch_size = batch_size

    def result(self) -> tuple[list[Tensor], Tensor]:
        """Exemplars of all classes, and their means."""
        with modes_kept(self.model), torch.no_grad():
            self.model.eval()
            exemplars = [images[: self.each] for images in self.known]
            for label in range(self.classes):
                images = self.images.gather((self.images.labels == label).nonzero().flatten())[0]
                if label >= len(exemplars):
                    exemplars.append(self._chosen(images))
                elif len(images):
                    exemplars[label] = self._chosen(torch.cat([exemplars[label], images]))
            versions = [torch.cat(exemplars)]
            if self.mirror:
                versions.append(versions[0].flip(dims=(3,)))
            sizes = [len(images) for images in exemplars]
            features = [self._features(images).split(sizes) for images in versions]
            return exemplars, nearest_means([torch.cat(parts) for parts in zip(*features, strict=True)])

    def _chosen(self, images: Tensor) -> Tensor:
        """Exemplars among the images ``[n, C, H, W]`` of a class, as the network gets them."""
        return images[herded(self._features(images), self.each).to(images.device)]

    def _features(self, images: Tensor) -> Tensor:
        """Features ``[N, F]`` of length 1."""
        batches = images.split(self.batch_size) if len(images) else ()
        parts = computed(self.model.features, batches, self.passed)
        return torch.cat([self.model.means.new_zeros(0, self.model.means.shape[1]), *parts])
