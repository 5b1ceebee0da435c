"""Tasks of a benchmark in memory, and the Avalanche benchmark over them.

Orders, splits and permutations are those of the paper and its code (docs/reference/benchmarks.md): ``numpy``'s legacy
``RandomState(seed).shuffle`` on index arrays throughout, which equals ``sklearn.utils.shuffle``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from avalanche.benchmarks import CLScenario, benchmark_from_datasets, with_task_labels
from numpy.typing import NDArray

from seu_bench.config.benchmark import BenchmarkSpec, InputSpec
from seu_bench.config.protocol import ImageLimits
from seu_bench.data.avalanche import TaskDataset
from seu_bench.data.dataset import Images, Labels, RawDataset, RawSplit
from seu_bench.data.images import TaskImages
from seu_bench.data.planning import StreamPlan, TaskPart, TaskPlan, dataset_names, ordered_tasks, plan_stream, shuffled
from seu_bench.errors import RequestError
from seu_bench.utils.progress import tracked

Rows = NDArray[np.int64]

#: Test subsets are the same for every seed, so that seeds are measured on the same images.
TEST_SUBSET_SEED = 0


@dataclass(frozen=True)
class TaskSplits:
    """One task's images, three splits that share no image."""

    train: TaskImages
    valid: TaskImages
    test: TaskImages


@dataclass(frozen=True)
class TaskStream:
    """A stream in memory.

    Attributes:
        plan: with the sizes as they are, not as planned.
        tasks: in the order in which they are learned.
        fingerprint: SHA-256 of the data and of how it is cut, without the seed.
    """

    plan: StreamPlan
    tasks: tuple[TaskSplits, ...]
    fingerprint: str

    def avalanche(self) -> CLScenario[Any]:
        """The Avalanche benchmark with streams ``train``, ``valid`` and ``test``, task labels and classes."""
        streams = {
            name: [TaskDataset.of(getattr(task, name)) for task in self.tasks] for name in ("train", "valid", "test")
        }
        scenario: CLScenario[Any] = with_task_labels(benchmark_from_datasets(**streams))
        for stream in scenario.streams.values():
            for experience, task in zip(stream, self.plan.tasks, strict=True):
                # Avalanche leaves this unset or makes it a set; its own MultiHeadClassifier wants a list.
                experience.classes_in_this_experience = list(range(task.num_classes))
        return scenario


def build_stream(
    spec: BenchmarkSpec,
    load: Callable[[str], RawDataset],
    limits: ImageLimits,
    seed: int,
    device: torch.device | None = None,
) -> TaskStream:
    """Build the tasks of a benchmark.

    Args:
        spec: the benchmark.
        load: name of a data set -> the data set; called once for each.
        limits: largest numbers of images per task and split.
        seed: of the tasks' order, splits and permutations.
        device: of the images.

    Returns:
        The stream, its tasks in the order of learning.

    Raises:
        RequestError: the benchmark does not fit the data, e.g. it names classes that there are not.

    Example:
        ``stream = build_stream(spec, lambda name: source(name).load(None), ImageLimits(train=64), seed=0)``
    """
    device = torch.device("cpu") if device is None else device
    raw = {name: load(name) for name in tracked(dataset_names(spec), "reading data sets")}
    infos = {name: data.info for name, data in raw.items()}
    plan = plan_stream(spec, infos, limits, seed)
    parts = ordered_tasks(spec, infos, seed)
    rows = [_rows(spec, part, raw[part.dataset], limits, seed) for part in parts]
    # Tasks of one data set with one normalisation share a store.
    keys = [(part.dataset, part.input) for part in parts]
    stores = {
        key: _store(raw[key[0]], key[1], [rows for own, rows in zip(keys, rows, strict=True) if own == key], device)
        for key in dict.fromkeys(keys)
    }

    def tensor(array: NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(array).to(device)

    tasks: list[TaskSplits] = []
    for index, (part, key, numbers) in enumerate(tracked(list(zip(parts, keys, rows, strict=True)), "preparing tasks")):
        store = stores[key]
        labels = [_relabelled(store.labels[each], part) for each in numbers]
        together = np.concatenate(labels)
        lowest, highest = together.min(), together.max()
        if lowest < 0 or highest >= part.head:
            raise RequestError(
                f"task {part.name!r} has labels {lowest} to {highest} but its head has {part.head} outputs",
                remedy="set classes (or label_offset) of the task in the benchmark file",
            )
        permutation = None
        if part.permutation_seed is not None:
            # The store's channels, not the plan's: grey images are permuted before they are repeated.
            permutation = tensor(shuffled(store.images[0].numel(), part.permutation_seed))
        places = [np.searchsorted(store.used, each) for each in numbers]
        splits = (
            TaskImages(store.images, tensor(where), tensor(own), index, plan.channels, permutation)
            for where, own in zip(places, labels, strict=True)
        )
        tasks.append(TaskSplits(*splits))
    sizes = [TaskPlan(part.name, part.head, *map(len, splits)) for part, splits in zip(parts, rows, strict=True)]
    return TaskStream(replace(plan, tasks=tuple(sizes)), tuple(tasks), fingerprint(spec, raw))


def fingerprint(spec: BenchmarkSpec, raw: Mapping[str, RawDataset]) -> str:
    """SHA-256 of the data sets as loaded and of how they are cut into tasks; the same for every seed."""
    parts = {
        "stream": spec.stream.model_dump(mode="json"),
        "data": {name: data.checksum() for name, data in sorted(raw.items())},
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _rows(
    spec: BenchmarkSpec, part: TaskPart, data: RawDataset, limits: ImageLimits, seed: int
) -> tuple[Rows, Rows, Rows]:
    """Images that train, validate and test a task; test images are numbered after all training images."""
    pool, test = (
        np.arange(len(split)) if part.classes is None else np.flatnonzero(np.isin(split.labels, part.classes))
        for split in (data.train, data.test)
    )
    if not len(pool) or not len(test):
        raise RequestError(f"task {part.name!r} of benchmark {spec.name!r} has no images in data set {part.dataset!r}")
    mixed = pool[shuffled(len(pool), seed)]
    cut = int(spec.stream.validation * len(pool))
    if len(pool) - cut < 2:
        raise RequestError(
            f"task {part.name!r} of benchmark {spec.name!r} has {len(pool) - cut} training image",
            remedy="a task needs two at least: searching and creating learn on one half and judge on the other",
        )
    if limits.test is not None and len(test) > limits.test:
        test = test[shuffled(len(test), TEST_SUBSET_SEED)[: limits.test]]
    return mixed[cut:][: limits.train], mixed[:cut][: limits.valid], len(data.train) + test


class _Store(NamedTuple):
    """Images ``[n, C, H, W]`` of the numbers ``used`` ``[n]``, ascending, and the labels of a whole data set."""

    images: torch.Tensor
    used: Rows
    labels: Labels


def _store(data: RawDataset, spec: InputSpec, tasks: Sequence[tuple[Rows, ...]], device: torch.device) -> _Store:
    """The images that any of ``tasks`` uses, normalised once."""
    used = np.unique(np.concatenate([rows for splits in tasks for rows in splits]))
    mean, std = statistics(spec, data.train)
    first, cut = len(data.train), np.searchsorted(used, len(data.train))
    chosen = data.train.images[used[:cut]], data.test.images[used[cut:] - first]
    images = torch.cat([normalised(images, spec, mean, std) for images in chosen]).to(device)
    return _Store(images, used, np.concatenate([data.train.labels, data.test.labels]))


def statistics(spec: InputSpec, train: RawSplit) -> tuple[Sequence[float], Sequence[float]]:
    """Mean and standard deviation per channel of pixels in [0, 1]: those given, or those of the training images."""
    if spec.mean is not None and spec.std is not None:
        return spec.mean, spec.std
    pixels = train.images.astype(np.float64) / 255
    std = pixels.std(axis=(0, 2, 3))
    return pixels.mean(axis=(0, 2, 3)).tolist(), np.where(std > 0, std, 1.0).tolist()


def normalised(images: Images, spec: InputSpec, mean: Sequence[float], std: Sequence[float]) -> torch.Tensor:
    """8-bit images ``[N, C, H, W]`` as a float32 tensor: padded, divided by 255, ``(x - mean) / std`` per channel."""
    if len(mean) not in (1, images.shape[1]):
        raise RequestError(
            f"{len(mean)} means for images of {images.shape[1]} channels",
            remedy="give input.mean and input.std one value per channel",
        )
    pixels = torch.from_numpy(np.ascontiguousarray(images))
    if spec.pad:
        pixels = torch.nn.functional.pad(pixels, (spec.pad,) * 4)
    values = pixels.float().div_(255)
    shape = (1, -1, 1, 1)
    return values.sub_(torch.tensor(mean).view(shape)).div_(torch.tensor(std).view(shape))


def _relabelled(labels: Labels, part: TaskPart) -> Labels:
    if part.classes is None:
        return labels - part.label_offset
    table = np.full(max(part.classes) + 1, -1, dtype=np.int64)
    table[list(part.classes)] = np.arange(len(part.classes))
    return table[labels]
