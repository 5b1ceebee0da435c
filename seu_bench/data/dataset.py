"""Data sets: 8-bit images in memory or in a file, and labels; described before and checksummed after loading.

NumPy only: a source of data need not know torch. :mod:`seu_bench.data.streams` makes tensors and tasks of it.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from seu_bench.errors import DataError
from seu_bench.utils.hardware import free_host_memory

Images: TypeAlias = NDArray[np.uint8]
Labels: TypeAlias = NDArray[np.int64]

#: Bytes of images that are held at once by what goes through all of them.
BLOCK_BYTES: Final = 2 * 1024**2
#: The environment variable that names the data root where ``--data-root`` is not given.
DATA_ROOT_VARIABLE = "SEU_BENCH_DATA"


def default_data_root(option: Path | None) -> Path:
    """Resolve the root folder of data sets, which need not exist.

    Args:
        option: the folder asked for; ``None`` takes ``$SEU_BENCH_DATA``, else ``~/.cache/seu-bench/data``.
    """
    if option is not None:
        return option.expanduser()
    named = os.environ.get(DATA_ROOT_VARIABLE)
    return Path(named).expanduser() if named else Path.home() / ".cache" / "seu-bench" / "data"


@dataclass(frozen=True)
class DatasetInfo:
    """Description of a data set, known without its files.

    Attributes:
        name: what benchmarks call it.
        channels, height, width: of an image, in pixels.
        num_classes: number of labels, i.e. one more than the greatest label.
        num_train: images in the training set (validation is carved from it).
        num_test: images in the test set.
        train_per_class, test_per_class: images of each class, where known; otherwise they are taken to be balanced.
        class_names: of the labels 0, 1, ...; ``None``: the classes have none.
    """

    name: str
    channels: int
    height: int
    width: int
    num_classes: int
    num_train: int
    num_test: int
    train_per_class: tuple[int, ...] | None = None
    test_per_class: tuple[int, ...] | None = None
    class_names: tuple[str, ...] | None = None


@dataclass(frozen=True)
class RawSplit:
    """Images ``[N, C, H, W]`` (uint8) and labels ``[N]`` (int64, from 0)."""

    images: Images
    labels: Labels

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class RawDataset:
    """A data set as its files have it: no padding, no normalisation.

    Arrays of other types become 8-bit images (:func:`as_8_bit`) and labels ``[N]`` (int64) where nothing has to be
    guessed, and are refused otherwise.

    Attributes:
        info: its description.
        train, test: its images; an ``np.memmap`` stays on disk, and batches are read from it.
        known_checksums: of the whole and of what is left without test images, where a source need not read all images
            again to know them.

    Example:
        .. code-block:: python

            info = DatasetInfo("mine", 1, 8, 8, num_classes=2, num_train=len(x), num_test=len(x_test))
            data = RawDataset(info, RawSplit(x, y), RawSplit(x_test, y_test))
    """

    info: DatasetInfo
    train: RawSplit
    test: RawSplit
    known_checksums: tuple[str, str] | None = None

    def checked(self) -> RawDataset:
        """The data set with arrays of other types converted.

        Raises:
            DataError: arrays have another type, range or shape than ``info`` says.
        """
        train = _checked_split(self.info, "train", self.info.num_train, self.train)
        return replace(self, train=train, test=_checked_split(self.info, "test", self.info.num_test, self.test))

    def without_test(self) -> RawDataset:
        """The data set with no test images, for whoever must not see them."""
        none = RawSplit(self.train.images[:0], self.train.labels[:0])
        known = None if self.known_checksums is None else (self.known_checksums[1],) * 2
        return RawDataset(replace(self.info, num_test=0, test_per_class=None), self.train, none, known)

    def checksum(self) -> str:
        """SHA-256 over shapes, images and labels of both splits."""
        return (self.known_checksums or self.read_checksums())[0]

    def read_checksums(self) -> tuple[str, str]:
        """Checksums of the whole and of what is left without test images, for which every image is read once."""
        digest = hashlib.sha256()
        _update(digest, self.train)
        alone = digest.copy()
        _update(digest, self.test)
        _update(alone, RawSplit(self.test.images[:0], self.test.labels[:0]))
        return digest.hexdigest(), alone.hexdigest()


def blocks(images: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Images ``[N, C, H, W]`` in their order, a few MiB at a time."""
    step = max(1, BLOCK_BYTES // max(1, math.prod(images.shape[1:])))
    for start in range(0, len(images), step):
        yield images[start : start + step]


def as_8_bit(images: NDArray[Any]) -> Images:
    """8-bit pixels of an array: whole numbers in 0..255, floating point in [0, 1], or truth values.

    Raises:
        ValueError: it has another type or range; the message says which.
    """
    if images.dtype == np.uint8:
        return images
    kind = images.dtype.kind
    if kind not in "buif":
        raise ValueError(f"has dtype {images.dtype}; needed is uint8, or float in [0, 1]")
    if images.size and not (images.min() >= 0 and images.max() <= (255 if kind in "ui" else 1)):  # NaN fails, too
        raise ValueError(
            f"has dtype {images.dtype} and values {images.min():g}..{images.max():g}; "
            "needed are whole numbers in 0..255, or floating point in [0, 1]"
        )
    if kind in "ui" or not images.size or not images.ndim:
        return images.astype(np.uint8)
    return np.concatenate([np.round(block * 255).astype(np.uint8) for block in blocks(images)])


def channels_first(images: NDArray[Any]) -> NDArray[Any]:
    """Images ``[N, H, W]``, ``[N, H, W, C]`` or ``[N, C, H, W]`` as ``[N, C, H, W]``.

    A last axis of 1 or 3 entries is taken for the channels, whatever axis 1 has.
    """
    if images.ndim == 3:
        return images[:, None]
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2) if images.shape[3] in (1, 3) else images)


def _checked_split(info: DatasetInfo, name: str, count: int, split: RawSplit) -> RawSplit:
    images, labels = split.images, np.asarray(split.labels)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    faults: list[str] = []
    try:
        images = as_8_bit(images if isinstance(images, np.memmap) else np.asarray(images))
    except ValueError as error:
        faults.append(f"{name} images: {error}")
    if images.shape != (shape := (count, info.channels, info.height, info.width)):
        faults.append(f"{name} images have shape {images.shape}; needed is {shape}, [N, C, H, W]")
    if labels.dtype.kind not in "ui" or labels.shape != (count,):
        faults.append(f"{name} labels are {labels.dtype} of shape {labels.shape}; needed are integers of {(count,)}")
    elif count and not (labels.min() >= 0 and labels.max() < info.num_classes):
        faults.append(f"{name} labels are from {labels.min()} to {labels.max()}, for {info.num_classes} classes")
    if faults:
        raise DataError(
            f"data set {info.name!r} does not hold what it says: {'; '.join(faults)}",
            remedy="have its source return uint8 images [N, C, H, W] and int64 labels [N] from 0, as its info says",
        )
    return RawSplit(images, labels.astype(np.int64, copy=False))


def _update(digest: hashlib._Hash, split: RawSplit) -> None:
    digest.update(str((split.images.shape, split.images.dtype.str)).encode())
    for images in blocks(split.images):
        digest.update(np.ascontiguousarray(images).data)
    digest.update(str((split.labels.shape, split.labels.dtype.str)).encode())
    digest.update(np.ascontiguousarray(split.labels).data)


Status: TypeAlias = Literal["embedded", "complete", "missing", "incomplete", "corrupt"]


@dataclass(frozen=True)
class DatasetState:
    """Whether a data set can be used.

    Attributes:
        status: ``embedded`` needs no files; files are ``complete``, ``missing``, ``incomplete`` (some are missing) or
            ``corrupt``.
        where: the folder or file that was looked in; ``None`` for embedded sets.
        bytes: size on disk of what is there.
        detail: which file is missing or corrupt, in words.
    """

    status: Status
    where: Path | None = None
    bytes: int | None = None
    detail: str = ""


class DatasetSource(Protocol):
    """A data set that can be described, looked for, fetched and loaded; ``register_datasets`` offers such.

    ``root`` is the folder of ``--data-root``, or ``None``; :func:`default_data_root` resolves it.
    """

    @property
    def summary(self) -> str:
        """One line that says what it is."""

    def info(self, root: Path | None) -> DatasetInfo:
        """Shape and sizes, without the files where they are known."""

    def state(self, root: Path | None) -> DatasetState:
        """Whether it can be used; looks, and changes nothing."""

    def load(self, root: Path | None) -> RawDataset:
        """Read it into memory.

        Raises:
            DataMissingError: it is missing; the message has the folder and the command that fetches it.
            DataCorruptError: a file is not what it should be.
        """

    def fetch(self, root: Path) -> None:
        """Download it below ``root`` and check it.

        Raises:
            DataError: it cannot be had.
        """


# ------------------------------------------------------------------------------------------- what sources are made of


def hold_out(
    labels: Labels, fraction: float, name: str, where: str | None = None, class_names: Sequence[str] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices of the training and of the test images, each ascending, for ``labels`` ``[N]`` without a test set.

    At least one image of each class is held out; which ones is the same in every run. The data set's ``name``, the
    file or folder ``where`` it is and the names of its classes are for messages.
    """
    generator = np.random.RandomState(0)  # fixed: which images are test images must not depend on a run's seed
    is_test = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels).tolist():
        found = np.flatnonzero(labels == label)
        if len(found) < 2:
            called = repr(class_names[label]) if label < len(class_names or ()) and class_names else str(label)
            raise DataError(
                f"data set {name!r} has a single image of class {called}, which cannot be both trained and tested on",
                where=where,
                remedy="give each class at least 2 images, or bring a test set of its own",
            )
        is_test[generator.permutation(found)[: max(1, int(fraction * len(found)))]] = True
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)


def counted(info: DatasetInfo, train: Labels, test: Labels) -> DatasetInfo:
    """``info`` with the sizes that the labels ``[N]`` of both splits really have."""
    each = [tuple(int(count) for count in np.bincount(labels, minlength=info.num_classes)) for labels in (train, test)]
    return replace(info, num_train=len(train), num_test=len(test), train_per_class=each[0], test_per_class=each[1])


def described(
    name: str,
    splits: Sequence[RawSplit],
    test_fraction: float,
    where: str | None = None,
    class_names: Sequence[str] | None = None,
) -> RawDataset:
    """A data set of a training and a test split, or of one that a test split is held out of; it describes itself.

    ``where`` it comes from is for messages. Names that are too few for its classes are none.
    """
    if len(splits) == 1:
        (data,) = splits
        held = hold_out(data.labels, test_fraction, name, where, class_names)
        splits = [RawSplit(data.images[rows], data.labels[rows]) for rows in held]
    train, test = splits
    _, channels, height, width = train.images.shape
    num_classes = 1 + int(max(train.labels.max(), test.labels.max()))
    names = tuple(class_names) if class_names is not None and len(class_names) >= num_classes else None
    blank = DatasetInfo(name, channels, height, width, num_classes, num_train=0, num_test=0, class_names=names)
    return RawDataset(counted(blank, train.labels, test.labels), train, test)


def require_memory(name: str, images: int, shape: Sequence[int], bytes_per_pixel: int = 1) -> None:
    """Refuse so many images of a data set, each of ``shape``, if they take more memory than is free.

    Raises:
        DataError: there is not enough; the message has the size.
    """
    needed, free = images * math.prod(shape) * bytes_per_pixel, free_host_memory()
    if needed > free:
        size = " x ".join(map(str, shape))
        raise DataError(
            f"data set {name!r} does not fit into memory: {images:,} images of {size} take {needed:,} bytes, "
            f"and {free:,} are free",
            remedy="take fewer or smaller images, or a folder of images with cache = 'disk'",
        )


def one_line(error: BaseException) -> str:
    """An exception's text on one line, its class's name where it has none."""
    return " ".join(str(error).split()) or type(error).__name__
