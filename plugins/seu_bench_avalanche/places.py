"""Images in memories as places in the stream, ``(task, position)``: small, exact, and no copies of images on disk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from avalanche.benchmarks.utils.flat_data import FlatData
from avalanche.benchmarks.utils.utils import concat_datasets
from torch import Tensor

from seu_bench.data import TaskDataset, TaskImages
from seu_bench.errors import RunError
from seu_bench.training import KeptImages


def places_of(dataset: Any) -> Tensor:
    """Origins of the images of a data set, in its order.

    Returns:
        ``[n, 2]`` int64: the task, and the position among the task's training images.

    Raises:
        RunError: its images are not those of a stream of ours.
    """
    return _places_in(dataset._flat_data)


def dataset_at(places: Tensor, stream: Any) -> TaskDataset:
    """The data set of the images at ``places`` ``[n, 2]`` in the training stream, in that order.

    Raises:
        ValueError: the stream has no such places.
        RunError: the stream is not ours.
    """
    if places.dtype != torch.int64 or places.dim() != 2 or places.shape[1] != 2:
        raise ValueError("places are pairs of integers")
    places = places.cpu()
    tasks = [int(task) for task in places[:, 0].unique()]
    datasets = [task_dataset(task, stream) for task in tasks] or [task_dataset(0, stream)]
    positions = places[:, 1].clone()
    first = 0
    for task, dataset in zip(tasks, datasets, strict=False):
        here = places[:, 0] == task
        if not bool(((places[here, 1] >= 0) & (places[here, 1] < len(dataset))).all()):
            raise ValueError(f"task {task} has {len(dataset)} images, and others were asked for")
        positions[here] += first
        first += len(dataset)
    whole: TaskDataset = concat_datasets(datasets)
    return whole.subset(positions.tolist())


def task_dataset(task: int, stream: Any) -> TaskDataset:
    """All training images of a task of the stream.

    Raises:
        ValueError: the stream has no such task.
        RunError: the stream is not ours.
    """
    if not 0 <= task < len(stream):
        raise ValueError(f"a stream of {len(stream)} tasks has no task {task}")
    dataset = stream[task].dataset
    # A position counts among all images of the task: a part of them would be counted otherwise.
    if not isinstance(dataset, TaskDataset) or not dataset.is_one_task or dataset._flat_data._indices is not None:
        raise _foreign()
    return dataset


def tasks_of(dataset: Any) -> list[int]:
    """The tasks whose images a data set consists of, in its order.

    Raises:
        RunError: its images are not those of a stream of ours.
    """
    return [_images_of(part).task for part in dataset._flat_data._datasets]


def kept_images(dataset: Any) -> list[KeptImages]:
    """The images of a data set and their sizes, by task; as it gives them where they are no stream's of ours."""
    try:
        tasks = places_of(dataset)[:, 0]
    except RunError:
        return [KeptImages(len(dataset), tuple(dataset[0][0].shape))] if len(dataset) else []
    shapes = {images.task: KeptImages.of(images).shape for images in _leaves(dataset._flat_data)}
    return [KeptImages(int((tasks == task).sum()), shape) for task, shape in shapes.items()]


def _leaves(flat: FlatData[Any]) -> Iterator[TaskImages]:
    for part in flat._datasets:
        yield from _leaves(part) if isinstance(part, FlatData) else [_images_of(part)]


def _places_in(flat: FlatData[Any]) -> Tensor:
    # Avalanche nests parts where two data sets that are put together end and begin with the same images.
    parts = [_places_in(part) if isinstance(part, FlatData) else _all_places(part) for part in flat._datasets]
    places = torch.cat([torch.zeros(0, 2, dtype=torch.int64), *parts])
    return places if flat._indices is None else places[torch.tensor(list(flat._indices), dtype=torch.int64)]


def _all_places(part: Any) -> Tensor:
    images = _images_of(part)
    return torch.stack([torch.full((len(images),), images.task), torch.arange(len(images))], dim=1)


def _images_of(part: Any) -> TaskImages:
    images = getattr(part, "images", None)
    if not isinstance(images, TaskImages):
        raise _foreign()
    return images


def _foreign() -> RunError:
    return RunError(
        "images that are not those of a seu-bench stream cannot be found again in a later process",
        remedy="make the stream with TaskStream.avalanche(), or train without keeping the strategy's state",
    )
