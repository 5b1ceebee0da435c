"""Images of a task's splits: which of a data set they are, and how their pixels and labels become a task's own."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from seu_bench.config.benchmark import BenchmarkSpec
from seu_bench.config.protocol import ImageLimits
from seu_bench.config.run import Evaluation
from seu_bench.config.streams import InputSpec
from seu_bench.data.classes import place_of, shuffled
from seu_bench.data.dataset import Labels, RawDataset
from seu_bench.data.image_store import FileStore, Store
from seu_bench.data.normaliser import Normaliser
from seu_bench.data.planning import validation_share, withheld
from seu_bench.data.sources.common import require_memory
from seu_bench.data.task_parts import TaskPart
from seu_bench.errors import RequestError

Rows = NDArray[np.int64]

#: Test subsets are the same for every seed, so that seeds are measured on the same images.
TEST_SUBSET_SEED = 0


def split_rows(
    spec: BenchmarkSpec,
    part: TaskPart,
    data: RawDataset,
    limits: ImageLimits,
    seed: int,
    evaluation: Evaluation,
    by_class: tuple[Rows, Rows] | None = None,
) -> tuple[Rows, Rows, Rows]:
    """Images that train, validate and test a task; test images are numbered after all training images.

    The validation images are in an order drawn by the seed: withheld ones are those at its end, so that where a limit
    leaves enough, those that are learned with are the same whether or not any are withheld.

    Args:
        spec: the benchmark.
        part: the task.
        data: its data set.
        limits: largest numbers of images per split.
        seed: of the run.
        evaluation: ``validation`` withholds half of the validation images, which take the place of test images.
        by_class: its training and validation images, where it asks for so many of each class.

    Raises:
        RequestError: it has no images, or none can be withheld.
    """
    pool, test = (
        np.arange(len(split)) if part.classes is None else np.flatnonzero(np.isin(split.labels, part.classes))
        for split in (data.train, data.test)
    )
    if not len(pool) or not (len(test) or evaluation == "validation"):
        none = "training images" if not len(pool) else "test images"
        raise RequestError(
            f"task {part.name!r} of benchmark {spec.name!r} has no {none} in data set {part.dataset!r}",
            where=place_of(spec, part.dataset, "stream"),
            remedy="bring images of its classes, or leave them out of the groups",
        )
    if by_class is None:
        mixed = pool[shuffled(len(pool), seed)]
        cut = int(validation_share(spec) * len(pool))
        by_class = mixed[cut:], mixed[:cut]
    train, valid = by_class
    if evaluation == "validation":
        kept = len(valid) - withheld(len(valid), evaluation)
        if kept == len(valid):
            raise RequestError(
                f"task {part.name!r} of benchmark {spec.name!r} has {len(valid)} validation images: "
                "none can be withheld",
                where=place_of(spec, part.dataset, "stream.validation"),
                remedy="raise the share of validation images, e.g. -o benchmark.stream.validation=0.2",
            )
        return train[: limits.train], valid[:kept][: limits.valid], valid[kept:][: limits.test]
    if part.test_per_class is not None:
        of_class = (test[data.test.labels[test] == label] for label in part.labels)
        test = np.sort(np.concatenate([_subset(images, part.test_per_class) for images in of_class]))
    return train[: limits.train], valid[: limits.valid], len(data.train) + _subset(test, limits.test)


def _subset(images: Rows, count: int | None) -> Rows:
    """So many of the images, at most, the same for every seed."""
    if count is None or len(images) <= count:
        return images
    return images[shuffled(len(images), TEST_SUBSET_SEED)[:count]]


def stored(data: RawDataset, spec: InputSpec, used: Rows, device: torch.device) -> tuple[Store, Normaliser, Rows]:
    """Inputs of a data set, what made them, and the numbers of the images that the store has, ascending.

    Of a data set in memory the store is a tensor of the images ``used``; of one in a file it has all images, of which
    batches are read.
    """
    normalise = Normaliser.of(spec, data)
    store: Store | None = FileStore.of(data, normalise, device)
    if store is None:
        shape = normalise.shape(data.info.channels, data.info.height, data.info.width)
        require_memory(data.info.name, len(used), shape, bytes_per_pixel=4)
        tests = used >= len(data.train)
        raw = np.concatenate([data.train.images[used[~tests]], data.test.images[used[tests] - len(data.train)]])
        store = normalise(torch.from_numpy(raw)).to(device)
    else:
        used = np.arange(len(data.train) + len(data.test))
    return store, normalise, used


def relabelled(labels: Labels, part: TaskPart) -> Labels:
    """Labels as the task numbers them; -1 where an image is of none of its classes."""
    if part.classes is None:
        return labels - part.label_offset
    table = np.full(max(*part.classes, labels.max()) + 1, -1, dtype=np.int64)
    table[list(part.classes)] = np.arange(len(part.classes))
    return table[labels]
