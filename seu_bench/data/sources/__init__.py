"""Sources of data: the one embedded set, and what a benchmark's own ``[datasets.NAME]`` stands for.

==========================  =============================================
:mod:`.official`            the official sets, checked by md5
:mod:`.folder`              a folder of class folders
:mod:`.npz`                 arrays in an ``.npz``
:mod:`.torchvision_class`   any class of ``torchvision.datasets``
:mod:`.idx`                 the file format of MNIST and its kin
:mod:`.common`              the data root, held-out test sets, errors
==========================  =============================================
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from seu_bench.config.benchmark import DatasetDefinition, FolderDefinition, NpzDefinition
from seu_bench.data.dataset import DatasetInfo, DatasetSource, DatasetState, Images, Labels, RawDataset
from seu_bench.data.sources.common import default_data_root, described, held_out, split_by_fraction
from seu_bench.data.sources.folder import FolderSource
from seu_bench.data.sources.npz import NpzSource
from seu_bench.data.sources.official import TorchvisionSource
from seu_bench.data.sources.torchvision_class import TorchvisionClassSource

__all__ = ["DigitsSource", "TorchvisionSource", "checksum_of_definition", "default_data_root", "definition_source"]

#: Images of each digit in scikit-learn's set.
_DIGITS = (178, 182, 177, 183, 181, 182, 181, 179, 174, 180)
_DIGITS_TEST_FRACTION = 0.25


class DigitsSource:
    """scikit-learn's 1,797 digits of 8x8 pixels, which come with the library: no files, no network.

    It has no test set of its own: 25 % of each class are held out, the same ones in every run.
    """

    @property
    def summary(self) -> str:
        """One line that says what it is."""
        return "1,797 handwritten digits, 8x8 grey, 10 classes; comes with scikit-learn"

    def info(self, root: Path | None) -> DatasetInfo:
        """Shape and exact sizes."""
        test = tuple(held_out(count, _DIGITS_TEST_FRACTION) for count in _DIGITS)
        train = tuple(count - out for count, out in zip(_DIGITS, test, strict=True))
        return DatasetInfo("digits", 1, 8, 8, 10, sum(train), sum(test), train, test)

    def state(self, root: Path | None) -> DatasetState:
        """Always embedded."""
        return DatasetState("embedded")

    def load(self, root: Path | None) -> RawDataset:
        """The set in memory, its grey values 0..16 spread over 0..255."""
        from sklearn.datasets import load_digits

        digits = load_digits()
        images: Images = np.round(digits.images * (255 / 16)).astype(np.uint8)[:, None]
        labels: Labels = digits.target.astype(np.int64)
        return described("digits", *split_by_fraction(images, labels, _DIGITS_TEST_FRACTION, "digits"))

    def fetch(self, root: Path) -> None:
        """Nothing to do."""


def definition_source(definition: DatasetDefinition, name: str) -> DatasetSource:
    """The source that a benchmark's ``[datasets.NAME]`` table defines.

    Args:
        definition: the table, validated; its paths are absolute.
        name: what the benchmark calls it.
    """
    if isinstance(definition, FolderDefinition):
        return FolderSource(definition, name)
    if isinstance(definition, NpzDefinition):
        return NpzSource(definition, name)
    return TorchvisionClassSource(definition, name)


def checksum_of_definition(definition: DatasetDefinition) -> str:
    """What identifies the user's own files, without decoding them.

    Returns:
        SHA-256 in hexadecimal: of an ``.npz``'s bytes; of a folder's sorted relative paths and sizes. Empty for
        torchvision's classes, whose files are not the user's own.

    Raises:
        DataMissingError: the file or folder does not exist.
    """
    if isinstance(definition, FolderDefinition):
        return FolderSource(definition, definition.path.name).checksum()
    if isinstance(definition, NpzDefinition):
        return NpzSource(definition, definition.path.name).checksum()
    return ""
