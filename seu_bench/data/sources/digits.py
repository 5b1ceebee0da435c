"""scikit-learn's digits: the one data set that needs no files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from seu_bench.data.dataset import DatasetInfo, DatasetState, RawDataset, RawSplit
from seu_bench.data.sources.common import described

_TRAIN, _TEST = (134, 137, 133, 138, 136, 137, 136, 135, 131, 135), (44, 45, 44, 45, 45, 45, 45, 44, 43, 45)
_NAMES = tuple("0123456789")


class DigitsSource:
    """scikit-learn's 1,797 digits of 8x8 pixels, which come with the library: no files, no network.

    It has no test set of its own: 25 % of each class are held out, the same ones in every run.
    """

    summary = "1,797 handwritten digits, 8x8 grey, 10 classes; comes with scikit-learn"

    def info(self, root: Path | None) -> DatasetInfo:
        """Shape and exact sizes."""
        return DatasetInfo("digits", 1, 8, 8, 10, sum(_TRAIN), sum(_TEST), _TRAIN, _TEST, _NAMES)

    def state(self, root: Path | None) -> DatasetState:
        """Always embedded."""
        return DatasetState("embedded")

    def load(self, root: Path | None) -> RawDataset:
        """The set in memory, its grey values 0..16 spread over 0..255."""
        from sklearn.datasets import load_digits

        digits = load_digits()
        images = np.round(digits.images * (255 / 16)).astype(np.uint8)[:, None]
        return described(
            "digits", [RawSplit(images, digits.target.astype(np.int64))], test_fraction=0.25, class_names=_NAMES
        )

    def fetch(self, root: Path) -> None:
        """Do nothing: the images come with scikit-learn."""
