"""scikit-learn's digits: the one data set that needs no files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from seu_bench.data.dataset import DatasetInfo, DatasetState, RawDataset, RawSplit
from seu_bench.data.sources.common import described, held_out, split_by_fraction

#: Images of each digit.
_COUNTS = (178, 182, 177, 183, 181, 182, 181, 179, 174, 180)
_TEST_FRACTION = 0.25


class DigitsSource:
    """scikit-learn's 1,797 digits of 8x8 pixels, which come with the library: no files, no network.

    It has no test set of its own: 25 % of each class are held out, the same ones in every run.
    """

    summary = "1,797 handwritten digits, 8x8 grey, 10 classes; comes with scikit-learn"

    def info(self, root: Path | None) -> DatasetInfo:
        """Shape and exact sizes."""
        test = tuple(held_out(count, _TEST_FRACTION) for count in _COUNTS)
        train = tuple(count - out for count, out in zip(_COUNTS, test, strict=True))
        return DatasetInfo("digits", 1, 8, 8, 10, sum(train), sum(test), train, test)

    def state(self, root: Path | None) -> DatasetState:
        """Always embedded."""
        return DatasetState("embedded")

    def load(self, root: Path | None) -> RawDataset:
        """The set in memory, its grey values 0..16 spread over 0..255."""
        from sklearn.datasets import load_digits

        digits = load_digits()
        images = np.round(digits.images * (255 / 16)).astype(np.uint8)[:, None]
        data = RawSplit(images, digits.target.astype(np.int64))
        return described("digits", *split_by_fraction(data, _TEST_FRACTION, "digits"))

    def fetch(self, root: Path) -> None:
        """Do nothing: the images come with scikit-learn."""
