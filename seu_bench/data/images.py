"""Images of a task: batches gathered by index from a store that tasks share, in memory or in a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from seu_bench.data.dataset import Images
from seu_bench.data.normaliser import Augmenter, Normaliser
from seu_bench.utils.rehearsing import abridged, active_rehearsal


@dataclass(frozen=True)
class FileStore:
    """Inputs ``[N, C, H, W]`` of a data set in a file, with as much of a tensor's interface as gathering needs.

    Attributes:
        train, test: 8-bit images; those of the test set are numbered after all training images.
        normalise: makes inputs of them.
        device: where inputs are made.
    """

    train: Images
    test: Images
    normalise: Normaliser
    device: torch.device

    @property
    def shape(self) -> torch.Size:
        """Images, channels, height and width."""
        return torch.Size((len(self.train) + len(self.test), *self.normalise.shape(*self.train.shape[1:])))

    def to(self, device: torch.device) -> FileStore:
        """The same store, which makes its inputs on another device."""
        return replace(self, normalise=self.normalise.to(device), device=device)

    def index_select(self, dim: int, rows: Tensor) -> Tensor:
        """Inputs ``[n, C, H, W]`` of the images ``rows`` ``[n]``; ``dim`` is 0, as torch calls it."""
        numbers = rows.cpu().numpy()
        is_test = numbers >= len(self.train)
        found = np.empty((len(numbers), *self.train.shape[1:]), dtype=np.uint8)
        found[~is_test] = self.train[numbers[~is_test]]
        found[is_test] = self.test[numbers[is_test] - len(self.train)]
        return self.normalise(torch.from_numpy(found).to(self.device))

    def __deepcopy__(self, memo: dict[int, object]) -> FileStore:
        return self  # what lies in a file is not copied with a learner that holds on to it


#: What images of a task are gathered from.
Store: TypeAlias = Tensor | FileStore


@dataclass(frozen=True)
class SampleIds:
    """Identity of a batch's images for the feature cache: owner of the split, and ``[n]`` int64 numbers on the CPU."""

    owner: object
    numbers: Tensor


def tag_batch(images: Tensor, ids: SampleIds) -> Tensor:
    """Return ``images`` themselves, known to :func:`sample_ids_of` from now on."""
    # An attribute, since batches reach models as plain tensors, through strategies, creators and Avalanche alike.
    if not images.is_inference():  # of those torch does not know whether they were changed
        images._seu_bench_sample_ids = (ids, images._version)  # type: ignore[attr-defined]
    return images


def sample_ids_of(images: Tensor) -> SampleIds | None:
    """Ids that :func:`tag_batch` gave this very tensor; ``None`` without any, or if it was changed in place since."""
    found: tuple[SampleIds, int] | None = getattr(images, "_seu_bench_sample_ids", None)
    return found[0] if found is not None and found[1] == images._version else None


@dataclass(frozen=True)
class TaskImages:
    """Images of one split of one task: rows of a store that tasks share.

    Attributes:
        store: normalised float32 images ``[N, C, H, W]`` of the whole data set, on the run's device, or what makes them
            of images in a file.
        rows: ``[n]`` int64, which of them are this split's, in its order.
        labels: ``[n]`` int64, numbered from 0 within the task; over all tasks in the class-incremental scenario.
        task: 0-based position of the task in the stream.
        permutation: ``[C*H*W]`` int64, the order in which this task sees the pixels.
        channels: a store of one channel is repeated to so many.
        sample_ids: who these images are; batches of them are tagged with it.
        hides_task: whether learners are not told the task: batches of all tasks have the task label 0.
        augmenter: changes images that train, before their pixels are permuted; ``None``: they stay as they are.
    """

    store: Store
    rows: Tensor
    labels: Tensor
    task: int
    channels: int
    permutation: Tensor | None = None
    sample_ids: SampleIds | None = None
    hides_task: bool = False
    augmenter: Augmenter | None = None

    @property
    def task_label(self) -> int:
        """The task as learners are told it."""
        return 0 if self.hides_task else self.task

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def device(self) -> torch.device:
        """Device of the images."""
        return self.store.device

    def gather(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Images ``[b, C, H, W]`` and labels ``[b]`` at ``positions`` of this split, which may be on the CPU."""
        return self._gather(positions.to(self.device), positions, None)

    def training_batch(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """The same, augmented."""
        return self._gather(positions.to(self.device), positions, self.augmenter)

    def _gather(self, positions: Tensor, as_given: Tensor, augmenter: Augmenter | None) -> tuple[Tensor, Tensor]:
        """The images at ``positions`` on the device; ``as_given`` may be on the CPU and spares a copy to it."""
        images = self.store.index_select(0, self.rows.index_select(0, positions))
        if augmenter is not None:
            images = augmenter(images)
        if self.permutation is not None:
            images = images.flatten(1).index_select(1, self.permutation).view_as(images)
        if images.shape[1] != self.channels:
            images = images.expand(-1, self.channels, -1, -1).contiguous()
        if self.sample_ids is not None and augmenter is None:  # others than these are seen once only
            tag_batch(images, SampleIds(self.sample_ids.owner, self.sample_ids.numbers[as_given.cpu()]))
        return images, self.labels.index_select(0, positions)

    def part(self, start: int, stop: int) -> TaskImages:
        """The images at positions ``start`` to ``stop`` (exclusive)."""
        return self.subset(slice(start, stop))

    def halves(self) -> tuple[TaskImages, TaskImages]:
        """First and second half by position: weights train on one, accuracy comes from the other (paper, II-E). The
        second has the odd image."""
        middle = len(self) // 2
        return self.part(0, middle), self.part(middle, len(self))

    def subset(self, positions: Tensor | slice) -> TaskImages:
        """The images at ``positions``, in that order."""
        ids = self.sample_ids
        if ids is not None:
            ids = SampleIds(ids.owner, ids.numbers[positions if isinstance(positions, slice) else positions.cpu()])
        return replace(self, rows=self.rows[positions], labels=self.labels[positions], sample_ids=ids)

    def to(self, device: torch.device) -> TaskImages:
        """Copy to another device."""
        if self.device == device:
            return self
        store, rows, labels = self.store.to(device), self.rows.to(device), self.labels.to(device)
        permutation = None if self.permutation is None else self.permutation.to(device)
        augmenter = None if self.augmenter is None else self.augmenter.to(device)
        return replace(self, store=store, rows=rows, labels=labels, permutation=permutation, augmenter=augmenter)

    def batches(self, size: int, *, shuffle: bool) -> Iterator[tuple[Tensor, Tensor]]:
        """All images once, in batches of images ``[b, C, H, W]`` and labels ``[b]``.

        Args:
            size: images per batch.
            shuffle: in an order drawn by torch's global generator, and for training: augmented, and a single image left
                over joins the batch before it.

        Example:
            ``for x, y in images.batches(64, shuffle=True): ...``
        """
        count = len(self)
        order = torch.randperm(count) if shuffle else torch.arange(count)
        here = order.to(self.device)
        bounds = batch_bounds(count, size, join=shuffle)
        if active_rehearsal() is not None:
            for turn in abridged([stop - start for start, stop in bounds]):
                yield self.gather(order[slice(*bounds[turn])])
            return
        for start, stop in bounds:
            yield self._gather(here[start:stop], order[start:stop], self.augmenter if shuffle else None)


def batch_bounds(count: int, size: int, *, join: bool) -> list[tuple[int, int]]:
    """Start and stop of each batch of ``count`` images.

    Args:
        count: images in all.
        size: images per batch.
        join: whether a single image left over joins the batch before it: BatchNorm cannot be trained on one image.

    Returns:
        A pair per batch.

    Example:
        ``batch_bounds(9, 4, join=True) == [(0, 4), (4, 9)]``
    """
    starts = list(range(0, count, size))
    if join and len(starts) > 1 and count - starts[-1] == 1:
        starts.pop()
    return list(pairwise([*starts, count]))
