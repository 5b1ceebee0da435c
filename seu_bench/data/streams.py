"""Tasks of a benchmark in memory, and the Avalanche benchmark over them.

Orders, splits and permutations are those of the paper and its code (docs/reference/benchmarks.md): ``numpy``'s legacy
``RandomState(seed).shuffle`` on index arrays throughout, which equals ``sklearn.utils.shuffle``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

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
    pieces = [_piece(spec, part, raw[part.dataset], limits, seed) for part in ordered_tasks(spec, infos, seed)]
    # Tasks of one data set with one normalisation share a store.
    keys = [(piece.part.dataset, piece.part.input) for piece in pieces]
    stores = {
        key: _Store(raw[key[0]], key[1], [p for p, own in zip(pieces, keys, strict=True) if own == key], device)
        for key in dict.fromkeys(keys)
    }
    tasks: list[TaskSplits] = []
    sizes: list[TaskPlan] = []
    prepared = tracked(list(zip(pieces, keys, plan.tasks, strict=True)), "preparing tasks")
    for index, (piece, key, planned) in enumerate(prepared):
        store, part = stores[key], piece.part
        permutation = None
        if part.permutation_seed is not None:
            # The store's channels, not the plan's: grey images are permuted before they are repeated.
            pixels = store.tensor[0].numel()
            permutation = torch.from_numpy(shuffled(pixels, part.permutation_seed)).to(device)
        splits = [store.images(piece, split, index, plan.channels, permutation) for split in ("train", "valid", "test")]
        labels = torch.cat([split.labels for split in splits])
        lowest, highest = int(labels.min()), int(labels.max())
        if lowest < 0 or highest >= planned.num_classes:
            raise RequestError(
                f"task {part.name!r} has labels {lowest} to {highest} but its head has {planned.num_classes} outputs",
                remedy="set classes (or label_offset) of the task in the benchmark file",
            )
        tasks.append(TaskSplits(*splits))
        sizes.append(replace(planned, num_train=len(splits[0]), num_valid=len(splits[1]), num_test=len(splits[2])))
    return TaskStream(replace(plan, tasks=tuple(sizes)), tuple(tasks), fingerprint(spec, raw))


def fingerprint(spec: BenchmarkSpec, raw: Mapping[str, RawDataset]) -> str:
    """SHA-256 of the data sets as loaded and of how they are cut into tasks; the same for every seed."""
    parts = {
        "stream": spec.stream.model_dump(mode="json"),
        "data": {name: data.checksum() for name, data in sorted(raw.items())},
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class _Piece(NamedTuple):
    """Rows of a data set that make one task: of its training set (train, valid) and of its test set."""

    part: TaskPart
    train: Rows
    valid: Rows
    test: Rows


def _piece(spec: BenchmarkSpec, part: TaskPart, data: RawDataset, limits: ImageLimits, seed: int) -> _Piece:
    pool, test = _of_classes(data.train.labels, part.classes), _of_classes(data.test.labels, part.classes)
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
    return _Piece(part, mixed[cut:][: limits.train], mixed[:cut][: limits.valid], test)


class _Store:
    """The images of one data set that any of ``pieces`` uses, normalised once."""

    def __init__(self, data: RawDataset, spec: InputSpec, pieces: Sequence[_Piece], device: torch.device) -> None:
        self._data = data
        self._train = np.unique(np.concatenate([rows for piece in pieces for rows in (piece.train, piece.valid)]))
        self._test = np.unique(np.concatenate([piece.test for piece in pieces]))
        mean, std = statistics(spec, data.train)
        used = (data.train.images[self._train], data.test.images[self._test])
        self.tensor = torch.cat([normalised(images, spec, mean, std) for images in used]).to(device)

    def images(
        self, piece: _Piece, split: Literal["train", "valid", "test"], task: int, channels: int, permutation: Any
    ) -> TaskImages:
        wanted: Rows = getattr(piece, split)
        if split == "test":
            rows, labels = np.searchsorted(self._test, wanted) + len(self._train), self._data.test.labels
        else:
            rows, labels = np.searchsorted(self._train, wanted), self._data.train.labels
        device = self.tensor.device
        own = torch.from_numpy(_relabelled(labels[wanted], piece.part)).to(device)
        return TaskImages(self.tensor, torch.from_numpy(rows).to(device), own, task, channels, permutation)


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


def _of_classes(labels: Labels, classes: Sequence[int] | None) -> Rows:
    rows = np.arange(len(labels)) if classes is None else np.flatnonzero(np.isin(labels, list(classes)))
    return rows.astype(np.int64)


def _relabelled(labels: Labels, part: TaskPart) -> Labels:
    if part.classes is None:
        return labels - part.label_offset
    table = np.full(max(part.classes) + 1, -1, dtype=np.int64)
    table[list(part.classes)] = np.arange(len(part.classes))
    return table[labels]
