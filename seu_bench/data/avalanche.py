"""Images of a task as Avalanche data sets and loaders, gathered in batches by index.

Avalanche's plugins that build a ``DataLoader`` of their own get whole batches from :class:`TaskDataset` too, through
``__getitems__`` and a collate function that passes batches on. Until then a batch is a ``TensorDataset``: a sequence of
``(x, y, t)`` to torch's own collate function, which some of its strategies leave in place. Images that train are
augmented whenever they are asked for, those of Avalanche's memories too, which hold places.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from avalanche.benchmarks.utils import AvalancheDataset, ConstantSequence, TaskLabels
from avalanche.benchmarks.utils.data_attribute import DataAttribute
from avalanche.benchmarks.utils.utils import TaskSet
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

from seu_bench.data.images import TaskImages, batch_bounds
from seu_bench.errors import RunError
from seu_bench.utils.rehearsing import abridge


class _Rows(Dataset[tuple[Tensor, Tensor]]):
    """:class:`TaskImages` under torch's single-image protocol, for code that asks image by image."""

    def __init__(self, images: TaskImages) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, position: int) -> tuple[Tensor, Tensor]:
        images, labels = self.images.training_batch(torch.tensor([int(position)]))
        return images[0], labels[0]


class TaskDataset(AvalancheDataset[Any]):
    """An Avalanche data set over :class:`~seu_bench.data.images.TaskImages` that can be gathered in whole batches."""

    @classmethod
    def of(cls, images: TaskImages) -> TaskDataset:
        """Make the data set of ``images``, with Avalanche's ``targets`` and ``targets_task_labels``."""
        targets = DataAttribute(images.labels.tolist(), name="targets")
        # Avalanche reads the first of constants, which where there are no images is none.
        tasks = TaskLabels(ConstantSequence(images.task_label, len(images)) if len(images) else [])
        return cls([_Rows(images)], data_attributes=[targets, tasks], collate_fn=collate)

    @property
    def task_set(self) -> TaskSet[TaskDataset]:
        """The images of each task, as Avalanche's classification data sets have it."""
        return TaskSet(self)

    @property
    def is_one_task(self) -> bool:
        """Whether all images come from one split of one task."""
        return len(self._flat_data._datasets) == 1

    def __getitems__(self, positions: Sequence[int] | Tensor) -> TensorDataset:
        """Images, labels and task labels at all ``positions`` at once."""
        tables = [rows.images for rows in self._flat_data._datasets]
        return TensorDataset(*_mixed_batch(tables, self._rows_of(torch.as_tensor(positions, dtype=torch.int64))))

    def _rows_of(self, positions: Tensor) -> Tensor:
        """Positions in this data set as positions in the concatenation of what it is a subset of."""
        indices = self._flat_data._indices
        if indices is None:
            return positions
        known: tuple[object, Tensor] | None = getattr(self, "_indices_as_tensor", None)
        if known is None or known[0] is not indices:
            known = (indices, torch.as_tensor(list(indices), dtype=torch.int64))
            self._indices_as_tensor = known
        return known[1][positions]


def _mixed_batch(tables: Sequence[TaskImages], positions: Tensor) -> list[Tensor]:
    """Images, labels and task labels at ``positions`` in all tables, one behind another; they are in that order."""
    starts = torch.tensor([0, *itertools.accumulate(map(len, tables))])
    which = torch.searchsorted(starts, positions, right=True) - 1
    parts: list[list[Tensor]] = []
    places: list[Tensor] = []
    for number in which.unique().tolist():
        places.append((which == number).nonzero().flatten())
        x, y = tables[number].training_batch(positions[places[-1]] - starts[number])
        parts.append([x, y, torch.full((len(y),), tables[number].task_label)])
    if len(parts) == 1:
        return parts[0]
    back = torch.cat(places).argsort()
    whole = [torch.cat(tensors) for tensors in zip(*parts, strict=True)]
    return [tensor[back.to(tensor.device, non_blocking=True)] for tensor in whole]


def collate(items: Any) -> list[Tensor]:
    """``[x, y, t]`` of a whole batch, or of single images, which is all that ``ConcatDataset`` hands on."""
    if isinstance(items, TensorDataset):
        return list(items.tensors)
    return [torch.stack([torch.as_tensor(value) for value in column]) for column in zip(*items, strict=True)]


def task_images(dataset: Any, task: int, device: torch.device) -> TaskImages:
    """Images of any Avalanche data set of ``(x, y, ...)`` items of one task.

    Those of a :class:`TaskDataset` are taken as they are; others are read into memory at each call, their current
    transforms applied, so random augmentation is drawn once per call.
    """
    tasks = getattr(getattr(dataset, "targets_task_labels", None), "uniques", ())
    if len(tasks) > 1:
        raise RunError(
            f"the data set for task {task} has images of {len(tasks)} tasks",
            remedy="give it task by task, or give a method tables of several tasks (Method.training_images)",
        )
    if isinstance(dataset, TaskDataset) and dataset.is_one_task:
        rows = dataset._flat_data._datasets[0]
        indices = dataset._flat_data._indices
        images: TaskImages = rows.images
        if indices is not None:
            images = images.subset(torch.as_tensor(list(indices), dtype=torch.int64, device=images.device))
        return images.to(device)
    items = [dataset[index] for index in range(len(dataset))]
    store = torch.stack([torch.as_tensor(item[0], dtype=torch.float32) for item in items])
    labels = torch.tensor([int(item[1]) for item in items])
    hides_task = task not in {int(label) for label in tasks or (0,)}
    return TaskImages(store, torch.arange(len(items)), labels, task, store.shape[1], hides_task=hides_task).to(device)


class BatchLoader:
    """Batches ``[x, y, t]`` of one task for an Avalanche strategy; a new order for each iteration.

    ``t`` stays on the CPU and is uniform, so that choosing the head costs no synchronisation with an accelerator.

    Args:
        images: of one split.
        batch_size, shuffle: as :meth:`TaskImages.batches` takes them.
    """

    def __init__(self, images: TaskImages, batch_size: int, *, shuffle: bool) -> None:
        self.images = images
        self.batch_size = batch_size
        self.shuffle = shuffle

    def __len__(self) -> int:
        return len(batch_bounds(len(self.images), self.batch_size, join=self.shuffle))

    def __iter__(self) -> Iterator[list[Tensor]]:
        task = torch.tensor([self.images.task_label])
        for x, y in self.images.batches(self.batch_size, shuffle=self.shuffle):
            yield [x, y, task.expand(len(y))]


class MixedBatches:
    """Batches ``[x, y, positions, t]`` of tables of one task each, shuffled over all of them, anew for each iteration.

    Positions are those in all tables, one behind another. A single image left over joins the batch before it.
    """

    def __init__(self, tables: Sequence[TaskImages], batch_size: int) -> None:
        self.tables = [table for table in tables if len(table)]
        self.batch_size = batch_size

    def __len__(self) -> int:
        return len(self._bounds)

    def __iter__(self) -> Iterator[list[Tensor]]:
        order = torch.randperm(sum(map(len, self.tables)))
        bounds = self._bounds
        for turn in abridge([stop - start for start, stop in bounds]):
            positions = order[slice(*bounds[turn])]
            x, y, t = _mixed_batch(self.tables, positions)
            yield [x, y, positions, t]

    @property
    def _bounds(self) -> list[tuple[int, int]]:
        return batch_bounds(sum(map(len, self.tables)), self.batch_size, join=True)
