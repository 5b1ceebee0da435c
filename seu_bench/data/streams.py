"""BenchmarkSpec + data + seed -> tasks, and the Avalanche benchmark over them.

Orders, splits and permutations are those of the paper and its code (docs/reference/benchmarks.md): ``numpy``'s legacy
``RandomState(seed).shuffle`` on index arrays throughout, which equals ``sklearn.utils.shuffle``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

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
        fingerprint: of the data and of how it is cut, without the seed.
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
    """Make the tasks of a benchmark.

    Args:
        load: name of a data set -> the data set; called once for each.
        limits: at most so many images per task and split.
        device: where the images are kept.

    Raises:
        RequestError: the benchmark does not fit the data, e.g. it names classes that there are not.
    """
    device = torch.device("cpu") if device is None else device
    raw = {name: load(name) for name in tracked(dataset_names(spec), "reading data sets")}
    infos = {name: data.info for name, data in raw.items()}
    plan = plan_stream(spec, infos, limits, seed)
    pieces: list[_Piece] = []
    for part in ordered_tasks(spec, infos, seed):
        data = raw[part.dataset]
        pool = _of_classes(data.train.labels, part.classes)
        held_out = _of_classes(data.test.labels, part.classes)
        if not len(pool) or not len(held_out):
            raise RequestError(
                f"task {part.name!r} of benchmark {spec.name!r} has no images in data set {part.dataset!r}"
            )
        mixed = pool[shuffled(len(pool), seed)]
        cut = int(spec.stream.validation * len(pool))
        train, valid = mixed[cut:], mixed[:cut]
        if len(train) < 2:
            raise RequestError(
                f"task {part.name!r} of benchmark {spec.name!r} has {len(train)} training image",
                remedy="a task needs two at least: searching and creating learn on one half and judge on the other",
            )
        test = held_out
        if limits.test is not None and len(test) > limits.test:
            test = test[shuffled(len(test), TEST_SUBSET_SEED)[: limits.test]]
        pieces.append(_Piece(part, train[: limits.train], valid[: limits.valid], test))
    stores = {key: _Store(raw[key[0]], key[1], pieces, key, device) for key in {piece.key for piece in pieces}}
    tasks: list[TaskSplits] = []
    sizes: list[TaskPlan] = []
    prepared = tracked(list(zip(pieces, plan.tasks, strict=True)), "preparing tasks")
    for index, (piece, planned) in enumerate(prepared):
        store, part = stores[piece.key], piece.part
        permutation = None
        if part.permutation_seed is not None:
            # The store's channels, not the plan's: grey images are permuted before they are repeated.
            pixels = store.tensor[0].numel()
            permutation = torch.from_numpy(shuffled(pixels, part.permutation_seed)).to(device)
        splits = [store.images(piece, split, index, plan.channels, permutation) for split in ("train", "valid", "test")]
        tasks.append(TaskSplits(*splits))
        labels = torch.cat([split.labels for split in splits])
        lowest, highest = int(labels.min()), int(labels.max())
        if lowest < 0 or highest >= planned.num_classes:
            raise RequestError(
                f"task {part.name!r} has labels {lowest} to {highest} but its head has {planned.num_classes} outputs",
                remedy="set classes (or label_offset) of the task in the benchmark file",
            )
        sizes.append(replace(planned, num_train=len(splits[0]), num_valid=len(splits[1]), num_test=len(splits[2])))
    return TaskStream(replace(plan, tasks=tuple(sizes)), tuple(tasks), fingerprint(spec, raw))


def fingerprint(spec: BenchmarkSpec, raw: Mapping[str, RawDataset]) -> str:
    """SHA-256 of the data sets as loaded and of how they are cut into tasks; the same for every seed."""
    parts = {
        "stream": spec.stream.model_dump(mode="json"),
        "data": {name: data.checksum() for name, data in sorted(raw.items())},
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class _Piece:
    """Rows of a data set that make one task: into its training set (train, valid) and into its test set."""

    part: TaskPart
    train: Rows
    valid: Rows
    test: Rows

    @property
    def key(self) -> tuple[str, InputSpec]:
        """Tasks of one data set with one normalisation share a store."""
        return (self.part.dataset, self.part.input)


class _Store:
    """The images of one data set that any task uses, normalised once."""

    def __init__(
        self,
        data: RawDataset,
        spec: InputSpec,
        pieces: Sequence[_Piece],
        key: tuple[str, InputSpec],
        device: torch.device,
    ) -> None:
        mine = [piece for piece in pieces if piece.key == key]
        self._data = data
        self._train = np.unique(np.concatenate([rows for piece in mine for rows in (piece.train, piece.valid)]))
        self._test = np.unique(np.concatenate([piece.test for piece in mine]))
        mean, std = statistics(spec, data.train)
        self.tensor = torch.cat(
            [
                normalised(data.train.images[self._train], spec, mean, std),
                normalised(data.test.images[self._test], spec, mean, std),
            ]
        ).to(device)

    def images(
        self, piece: _Piece, split: str, task: int, channels: int, permutation: torch.Tensor | None
    ) -> TaskImages:
        wanted: Rows = getattr(piece, split)
        source = self._data.test if split == "test" else self._data.train
        if split == "test":
            rows = np.searchsorted(self._test, wanted) + len(self._train)
        else:
            rows = np.searchsorted(self._train, wanted)
        labels = _relabelled(source.labels[wanted], piece.part)
        device = self.tensor.device
        return TaskImages(
            self.tensor,
            torch.from_numpy(rows).to(device),
            torch.from_numpy(labels).to(device),
            task,
            channels,
            permutation,
        )


def statistics(spec: InputSpec, train: RawSplit) -> tuple[Sequence[float], Sequence[float]]:
    """Mean and standard deviation per channel of pixels in [0, 1]: those given, or those of the training images."""
    if spec.mean is not None and spec.std is not None:
        return spec.mean, spec.std
    pixels = train.images.astype(np.float64) / 255
    std = pixels.std(axis=(0, 2, 3))
    return pixels.mean(axis=(0, 2, 3)).tolist(), np.where(std > 0, std, 1.0).tolist()


def normalised(images: Images, spec: InputSpec, mean: Sequence[float], std: Sequence[float]) -> torch.Tensor:
    """8-bit images ``[N, C, H, W]`` as a float32 tensor: padded, divided by 255, ``(x - mean) / std`` per channel.

    Raises:
        RequestError: the number of means does not fit the channels.
    """
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
