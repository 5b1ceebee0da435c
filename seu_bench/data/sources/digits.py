"""scikit-learn's digits: the one data set that needs no files."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

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
        values = _values()
        images = np.round(values[:, :-1].reshape(-1, 1, 8, 8) * (255 / 16)).astype(np.uint8)
        return described(
            "digits", [RawSplit(images, values[:, -1].astype(np.int64))], test_fraction=0.25, class_names=_NAMES
        )

    def fetch(self, root: Path) -> None:
        """Do nothing: the images come with scikit-learn."""


def _values() -> NDArray[np.float64]:
    """Rows of 64 grey values, 0..16, and the class: from scikit-learn's file, which is read sooner than it is imported.

    Importing it takes as long as importing torch does, and the digits are what everybody begins with.
    """
    spec = find_spec("sklearn")
    path = Path(str(spec and spec.origin)).parent / "datasets" / "data" / "digits.csv.gz"
    if path.is_file():
        return np.loadtxt(path, delimiter=",")
    from sklearn.datasets import load_digits

    digits = load_digits()
    return np.column_stack([digits.data, digits.target])
