"""A data set of bright stripes: the class is the stripe's place. No files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from seu_bench.data import DatasetInfo, DatasetState, RawDataset, RawSplit

CLASSES, SIDE = 6, 12
TRAIN, TEST = 60, 20


class Stripes:
    """The source: described, looked for, loaded, fetched."""

    summary = "stripes: 480 images, 12x12 grey, 6 classes; made up"

    def info(self, root: Path | None) -> DatasetInfo:
        """Shape and sizes."""
        per_class = (TRAIN,) * CLASSES, (TEST,) * CLASSES
        return DatasetInfo("stripes", 1, SIDE, SIDE, CLASSES, TRAIN * CLASSES, TEST * CLASSES, *per_class)

    def state(self, root: Path | None) -> DatasetState:
        """Always there."""
        return DatasetState("embedded")

    def load(self, root: Path | None) -> RawDataset:
        """8-bit images ``[N, C, H, W]`` and labels ``[N]``, the same in every run."""
        generator = np.random.default_rng(0)
        return RawDataset(self.info(root), _split(generator, TRAIN), _split(generator, TEST))

    def fetch(self, root: Path) -> None:
        """Do nothing: the images are generated."""


def _split(generator: np.random.Generator, each: int) -> RawSplit:
    labels = np.repeat(np.arange(CLASSES, dtype=np.int64), each)
    images = generator.integers(0, 100, (len(labels), 1, SIDE, SIDE), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[0, :, 2 * label : 2 * label + 2] += 100
    return RawSplit(images, labels)
