"""A data set that is made in code and a benchmark over it, without TOML.

seu-bench run --plugin examples/own_benchmark.py --benchmark split_spots --protocol quick --strategy ewc
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from seu_bench import Register, hookimpl
from seu_bench.config import BenchmarkSource, BenchmarkSpec
from seu_bench.data import DatasetInfo, DatasetSource, DatasetState, RawDataset, RawSplit

CLASSES, SIDE, TRAIN, TEST = 4, 12, 60, 20


class Spots:
    """Grey images with one bright spot each: the class is the corner that it is in."""

    summary = "spots: 320 images, 12x12 grey, 4 classes; made up"

    def info(self, root: Path | None) -> DatasetInfo:
        """Shape and sizes, without making the images."""
        return DatasetInfo("spots", 1, SIDE, SIDE, CLASSES, CLASSES * TRAIN, CLASSES * TEST)

    def state(self, root: Path | None) -> DatasetState:
        """Always there."""
        return DatasetState("embedded")

    def load(self, root: Path | None) -> RawDataset:
        """8-bit images ``[N, C, H, W]`` and labels ``[N]``, the same in every run."""
        random = np.random.default_rng(0)
        return RawDataset(self.info(root), split(random, TRAIN), split(random, TEST))

    def fetch(self, root: Path) -> None:
        """Do nothing: there are no files."""


def split(random: np.random.Generator, each: int) -> RawSplit:
    """So many images of each class."""
    labels = np.repeat(np.arange(CLASSES), each)
    images = random.integers(0, 100, (len(labels), 1, SIDE, SIDE), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        row, column = 6 * (label // 2), 6 * (label % 2)
        image[0, row : row + 4, column : column + 4] += 120
    return RawSplit(images, labels)


@hookimpl
def register_datasets(register: Register[DatasetSource]) -> None:
    """Offer ``spots``."""
    register("spots", Spots())


@hookimpl
def register_benchmarks(register: Register[BenchmarkSource]) -> None:
    """Offer ``split_spots``."""
    stream = {"kind": "classes", "dataset": "spots", "classes_per_task": 2}
    register("split_spots", BenchmarkSpec.of(stream, name="split_spots", summary="2 tasks of 2 corners each"))
