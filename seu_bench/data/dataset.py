"""Data sets: 8-bit images in memory or in a file, features, or tokens; described before and checksummed after loading.

NumPy only: a source of data need not know torch. :mod:`seu_bench.data.streams` makes tensors and tasks of it.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from seu_bench.config.streams import InputKind
from seu_bench.errors import DataError
from seu_bench.utils.hardware import free_host_memory

if TYPE_CHECKING:
    import torch

Images: TypeAlias = NDArray[np.uint8]
Labels: TypeAlias = NDArray[np.int64]

#: Bytes of images that are held at once by what goes through all of them.
BLOCK_BYTES: Final = 2 * 1024**2
#: The environment variable that names the data root where ``--data-root`` is not given.
DATA_ROOT_VARIABLE = "SEU_BENCH_DATA"


def default_data_root(option: Path | None) -> Path:
    """Resolve the folder of data sets, which need not exist: ``option``, ``$SEU_BENCH_DATA`` or one in the cache."""
    if option is not None:
        return option.expanduser()
    named = os.environ.get(DATA_ROOT_VARIABLE)
    return Path(named).expanduser() if named else Path.home() / ".cache" / "seu-bench" / "data"


@dataclass(frozen=True)
class InputShape:
    """One sample, as a network takes it.

    Attributes:
        kind: images and features are float32, tokens int64.
        shape: ``(C, H, W)`` of an image, ``(D,)`` of features, ``(L,)`` of tokens.
        vocabulary: of tokens, whose ids are from 0 to ``vocabulary - 1``.

    Example:
        >>> InputShape("features", (30,)).zeros(2).shape
        torch.Size([2, 30])
    """

    kind: InputKind
    shape: tuple[int, ...]
    vocabulary: int | None = None

    @property
    def sides(self) -> tuple[int, int, int]:
        """Channels, height and width; of other samples their length, 1 and 1."""
        channels, height, width = (*self.shape, 1, 1)[:3]
        return channels, height, width

    @property
    def dtype(self) -> torch.dtype:
        """Type of a batch's numbers."""
        import torch

        return torch.int64 if self.kind == "tokens" else torch.float32

    def zeros(self, count: int, device: torch.device | str = "cpu") -> torch.Tensor:
        """A blank batch ``[count, *shape]``."""
        import torch

        return torch.zeros((count, *self.shape), dtype=self.dtype, device=device)

    def __str__(self) -> str:
        words = {"image": "images of {}", "features": "{} features", "tokens": "{} tokens, vocabulary {}"}
        return words[self.kind].format("x".join(map(str, self.shape)), self.vocabulary)


@dataclass(frozen=True)
class DatasetInfo:
    """Description of a data set, known without its files.

    Attributes:
        name: what benchmarks call it.
        channels, height, width: of an image, in pixels; of other samples their length, 1 and 1.
        num_classes: number of labels, i.e. one more than the greatest label.
        num_train: images in the training set (validation is carved from it).
        num_test: images in the test set.
        train_per_class, test_per_class: images of each class, where known; otherwise they are taken to be balanced.
        class_names: of the labels 0, 1, ...; ``None``: the classes have none.
        kind, vocabulary: of a sample, as of :class:`InputShape`.
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
    kind: InputKind = "image"
    vocabulary: int | None = None

    @property
    def input(self) -> InputShape:
        """What a sample is."""
        shape = (self.channels, self.height, self.width)[: 3 if self.kind == "image" else 1]
        return InputShape(self.kind, shape, self.vocabulary)


@dataclass(frozen=True)
class RawSplit:
    """Samples and labels ``[N]`` (int64, from 0).

    Samples are images ``[N, C, H, W]`` (uint8), features ``[N, D]`` (float32) or ids of tokens ``[N, L]`` (integers).
    """

    images: NDArray[Any]
    labels: Labels

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class RawDataset:
    """A data set as its files have it: no padding, no normalisation.

    Attributes:
        info: its description.
        train, test: its images; an ``np.memmap`` stays on disk, and batches are read from it.
        known_checksums: of the whole and of what is left without test images, where they were computed before.

    Example:
        .. code-block:: python

            info = DatasetInfo("mine", 1, 8, 8, num_classes=2, num_train=len(x), num_test=len(x_test))
            data = RawDataset(info, RawSplit(x, y), RawSplit(x_test, y_test))
    """

    info: DatasetInfo
    train: RawSplit
    test: RawSplit
    known_checksums: tuple[str, str] | None = None

    def check(self) -> RawDataset:
        """The data set, labels as int64, features as float32; a :class:`DataError` if it is not what ``info`` says."""
        train = _checked_split(self.info, "train", self.info.num_train, self.train)
        return replace(self, train=train, test=_checked_split(self.info, "test", self.info.num_test, self.test))

    def without_test(self) -> RawDataset:
        """The data set with no test images, for whoever must not see them."""
        none = RawSplit(self.train.images[:0], self.train.labels[:0])
        known = None if self.known_checksums is None else (self.known_checksums[1],) * 2
        return RawDataset(replace(self.info, num_test=0, test_per_class=None), self.train, none, known)

    def without_train(self) -> RawDataset:
        """The data set with a copy of its test images and no training images, all of whose labels stay."""
        train = RawSplit(self.train.images[:0].copy(), self.train.labels)  # a view would hold all of them
        test = RawSplit(np.array(self.test.images), self.test.labels)
        return replace(self, train=train, test=test, known_checksums=self.known_checksums or self.read_checksums())

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


def blocks(images: NDArray[Any], rows: NDArray[np.int64] | None = None) -> Iterator[NDArray[Any]]:
    """Images ``[N, C, H, W]`` in their order, or those at ``rows``, a few MiB at a time."""
    step = max(1, BLOCK_BYTES // max(1, math.prod(images.shape[1:])))
    for start in range(0, len(images if rows is None else rows), step):
        part = slice(start, start + step)
        yield images[part] if rows is None else images[rows[part]]


def as_8_bit(images: NDArray[Any]) -> Images:
    """8-bit pixels of an array: whole numbers in 0..255, floating point in [0, 1], or truth values.

    Raises:
        ValueError: it has another type or range; the message says which.
    """
    kind, due = images.dtype.kind, "needed are whole numbers in 0..255, or floating point in [0, 1]"
    if kind not in "buif":
        raise ValueError(f"has dtype {images.dtype}; {due}")
    if images.size and not (images.min() >= 0 and images.max() <= (255 if kind in "ui" else 1)):  # NaN fails, too
        raise ValueError(f"has dtype {images.dtype} and values {images.min():g}..{images.max():g}; {due}")
    if kind in "ui" or not images.size or not images.ndim:
        return images.astype(np.uint8, copy=False)
    return np.concatenate([np.round(block * 255).astype(np.uint8) for block in blocks(images)])


def channels_first(images: NDArray[Any]) -> NDArray[Any]:
    """Images ``[N, H, W]``, ``[N, H, W, C]`` or ``[N, C, H, W]`` as ``[N, C, H, W]``.

    A last axis of 1 or 3 entries is taken for the channels, whatever axis 1 has.
    """
    if images.ndim == 3:
        return images[:, None]
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2) if images.shape[3] in (1, 3) else images)


def as_features(values: NDArray[Any], columns: Sequence[str] = ()) -> NDArray[np.float32]:
    """Features ``[N, D]`` of an array of numbers, whose ``columns`` may have names, as float32.

    Raises:
        ValueError: it has another type or shape, or numbers that are not finite, or that float32 cannot tell apart.
    """
    if values.dtype.kind not in "buif" or values.ndim != 2 or not values.shape[1]:
        raise ValueError(f"has dtype {values.dtype} and shape {values.shape}; needed are numbers [N, D]")
    with np.errstate(over="ignore"):
        found = values.astype(np.float32)
    called = [repr(name) for name in columns] or range(values.shape[1])
    if len(wrong := np.argwhere(~np.isfinite(found))):
        row, column = wrong[0]
        what = f"has {values[row, column]} in row {row} (from 0), column {called[column]}"
        raise ValueError(f"{what}; needed are finite numbers that float32 can hold")
    if len(values) and values.dtype.itemsize > 2 and values.dtype != np.float32:
        exact = values.astype(np.float64)
        coarse = np.abs(found - exact).max(axis=0) > 1e-3 * exact.std(axis=0)
        if len(at := np.flatnonzero(coarse & (np.ptp(exact, axis=0) > 0))):
            what = f"has numbers in column {called[at[0]]} that differ too little for float32"
            raise ValueError(f"{what}: subtract their mean")
    return found


def as_tokens(values: NDArray[Any], vocabulary: int) -> NDArray[np.int32]:
    """Ids of tokens ``[N, L]`` of an array of integers.

    Raises:
        ValueError: it has another type or shape, or ids that are not from 0 to ``vocabulary - 1``.
    """
    if values.dtype.kind not in "ui" or values.ndim != 2 or not values.shape[1]:
        raise ValueError(f"has dtype {values.dtype} and shape {values.shape}; needed are integers [N, L]")
    if values.size and not (values.min() >= 0 and values.max() < vocabulary):
        what = f"has ids of tokens from {values.min()} to {values.max()}"
        raise ValueError(f"{what}; for a vocabulary of {vocabulary} they are from 0 to {vocabulary - 1}")
    return values.astype(np.int32, copy=False)


#: What a source returns of each kind of sample.
_DUE: Final = {
    "image": "uint8 images [N, C, H, W]",
    "features": "float32 features [N, D]",
    "tokens": "ids of tokens [N, L] (integers)",
}


def _checked_split(info: DatasetInfo, name: str, count: int, split: RawSplit) -> RawSplit:
    images, labels = split.images, np.asarray(split.labels)
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    faults: list[str] = []
    what, shape = "images" if info.kind == "image" else info.kind, (count, *info.input.shape)
    try:
        if info.kind == "features":
            images = as_features(images)
        elif info.kind == "tokens":
            images = as_tokens(images, info.vocabulary or 0)
        if images.shape != shape or (info.kind == "image" and images.dtype != np.uint8):
            due = "uint8 of " if info.kind == "image" else ""
            faults.append(f"{name} {what} are {images.dtype} of shape {images.shape}; needed are {due}{shape}")
    except ValueError as error:
        faults.append(f"its array of {name} {what} {error}")
    if labels.dtype.kind not in "ui" or labels.shape != (count,):
        faults.append(f"{name} labels are {labels.dtype} of shape {labels.shape}; needed are integers of {(count,)}")
    elif count and not (labels.min() >= 0 and labels.max() < info.num_classes):
        faults.append(f"{name} labels are from {labels.min()} to {labels.max()}, for {info.num_classes} classes")
    if faults:
        raise DataError(
            f"data set {info.name!r} does not hold what it says: {'; '.join(faults)}",
            remedy=f"have its source return {_DUE[info.kind]} and int64 labels [N] from 0, as its info says",
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
        status: ``embedded`` needs no files; files are ``complete``, ``missing``, ``incomplete`` or ``corrupt``.
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

    One of other samples than images says so by an attribute ``kind``, ``"features"`` or ``"tokens"``, too: a network
    that does not take them is refused before anything is loaded.

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
        """Read it into memory, or raise a DataMissingError or DataCorruptError that says what to do."""

    def fetch(self, root: Path) -> None:
        """Download it below ``root`` and check it, or raise a DataError."""


# ------------------------------------------------------------------------------------------- what sources are made of


def hold_out(
    labels: Labels, fraction: float, name: str, where: str | None = None, class_names: Sequence[str] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices of the training and of the test images, each ascending, for ``labels`` ``[N]`` without a test set.

    At least one image of each class is held out, the same ones in every run. The other arguments are for messages.
    """
    generator = np.random.RandomState(0)  # fixed: which images are test images must not depend on a run's seed
    is_test = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels).tolist():
        found = np.flatnonzero(labels == label)
        if len(found) < 2:
            called = repr(class_names[label]) if class_names and label < len(class_names) else str(label)
            what = (
                f"data set {name!r} has a single sample of class {called}, which cannot be both trained and tested on"
            )
            raise DataError(what, where=where, remedy="give each class at least 2, or bring a test set")
        is_test[generator.permutation(found)[: max(1, int(fraction * len(found)))]] = True
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)


def count_labels(info: DatasetInfo, train: Labels, test: Labels) -> DatasetInfo:
    """``info`` with the sizes that the labels ``[N]`` of both splits really have."""
    each = [tuple(np.bincount(labels, minlength=info.num_classes).tolist()) for labels in (train, test)]
    return replace(info, num_train=len(train), num_test=len(test), train_per_class=each[0], test_per_class=each[1])


def describe_dataset(
    name: str,
    splits: Sequence[RawSplit],
    test_fraction: float,
    where: str | None = None,
    class_names: Sequence[str] | None = None,
    kind: InputKind = "image",
    vocabulary: int | None = None,
) -> RawDataset:
    """A data set of a training and a test split, or of one that a test split is held out of; it describes itself.

    ``where`` it comes from is for messages. Names that are too few for its classes are none.
    """
    if len(splits) == 1:
        (data,) = splits
        held = hold_out(data.labels, test_fraction, name, where, class_names)
        splits = [RawSplit(data.images[rows], data.labels[rows]) for rows in held]
    train, test = splits
    if (shape := train.images.shape[1:]) != (other := test.images.shape[1:]):
        what = f"data set {name!r} has {'images' if kind == 'image' else kind} {shape} in training and {other} in test"
        raise DataError(what, where=where, remedy="bring all of them to one shape")
    num_classes = 1 + int(max(train.labels.max(), test.labels.max()))
    names = tuple(class_names) if class_names is not None and len(class_names) >= num_classes else None
    sides = InputShape(kind, shape).sides
    blank = DatasetInfo(name, *sides, num_classes, 0, 0, class_names=names, kind=kind, vocabulary=vocabulary)
    return RawDataset(count_labels(blank, train.labels, test.labels), train, test)


def require_memory(name: str, images: int, shape: Sequence[int], bytes_per_pixel: int = 1) -> None:
    """Refuse so many images of a data set, each of ``shape``, by a DataError if they take more memory than is free."""
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
