"""Shared by sources: the data root, errors of missing files, held-out test sets, pixels of PIL images, user's files."""

from __future__ import annotations

import contextlib
import importlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from seu_bench.data.dataset import DatasetInfo, DatasetState, Images, Labels, RawDataset, RawSplit
from seu_bench.errors import DataError, DataMissingError
from seu_bench.utils.progress import bar

#: The environment variable that names the data root where ``--data-root`` is not given.
DATA_ROOT_VARIABLE = "SEU_BENCH_DATA"


def default_data_root(option: Path | None) -> Path:
    """Resolve the root folder of data sets.

    Args:
        option: the folder asked for; ``None`` takes ``$SEU_BENCH_DATA``, else ``~/.cache/seu-bench/data``.

    Returns:
        The folder; it need not exist.
    """
    if option is not None:
        return option.expanduser()
    named = os.environ.get(DATA_ROOT_VARIABLE)
    return Path(named).expanduser() if named else Path.home() / ".cache" / "seu-bench" / "data"


def missing_error(name: str, root: Path, detail: str = "") -> DataMissingError:
    """The error of a data set that can be fetched below ``root``; ``detail`` names the files that are missing."""
    return DataMissingError(
        f"data set {name!r} is " + (f"incomplete, {detail}" if detail else "missing"),
        where=str(root),
        remedy=f"seu-bench data fetch {name} --data-root {root}"
        f" (or point --data-root or {DATA_ROOT_VARIABLE} at the folder that holds it)",
    )


def one_line(error: BaseException) -> str:
    """An exception's text on one line, its class's name where it has none."""
    return " ".join(str(error).split()) or type(error).__name__


def held_out(count: int, fraction: float) -> int:
    """Number of test images among ``count`` images of one class: ``int(fraction * count)``, but at least one."""
    return max(1, int(fraction * count))


def hold_out(labels: Labels, fraction: float, name: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split a data set that has no test set, class by class, the same way in every run.

    Args:
        labels: ``[N]``.
        fraction: of each class's images that become test images, in (0, 1).
        name: the data set, for messages.

    Returns:
        Indices of the training and of the test images, each ascending; together they are ``0 .. N-1``.

    Raises:
        DataError: a class has a single image, so that it cannot be in both.
    """
    generator = np.random.RandomState(0)  # fixed: which images are test images must not depend on a run's seed
    is_test = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        if len(members) < 2:
            raise DataError(
                f"data set {name!r} has a single image of class {label}, which cannot be both trained and tested on",
                remedy="give each class at least 2 images, or bring a test set of its own",
            )
        is_test[generator.permutation(members)[: held_out(len(members), fraction)]] = True
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)


def split_by_fraction(data: RawSplit, fraction: float, name: str) -> tuple[RawSplit, RawSplit]:
    """Training and test split of ``data``, held out by :func:`hold_out`."""
    train, test = hold_out(data.labels, fraction, name)
    return RawSplit(data.images[train], data.labels[train]), RawSplit(data.images[test], data.labels[test])


def counted(info: DatasetInfo, train: Labels, test: Labels) -> DatasetInfo:
    """``info`` with the sizes that the labels ``[N]`` of both splits really have."""
    each = [tuple(int(count) for count in np.bincount(labels, minlength=info.num_classes)) for labels in (train, test)]
    return replace(info, num_train=len(train), num_test=len(test), train_per_class=each[0], test_per_class=each[1])


def described(name: str, train: RawSplit, test: RawSplit) -> RawDataset:
    """A data set whose description is taken from its arrays."""
    num_classes = 1 + int(max(train.labels.max(), test.labels.max()))
    _, channels, height, width = train.images.shape
    blank = DatasetInfo(name, channels, height, width, num_classes, num_train=0, num_test=0)
    return RawDataset(counted(blank, train.labels, test.labels), train, test)


def channels_first(images: NDArray[Any]) -> NDArray[Any]:
    """Images ``[N, H, W]``, ``[N, H, W, C]`` or ``[N, C, H, W]`` as ``[N, C, H, W]``.

    A last axis of 1 or 3 entries is taken for the channels, whatever axis 1 has.
    """
    if images.ndim == 3:
        return images[:, None]
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2)) if images.shape[3] in (1, 3) else images


def as_pixels(image: Any, channels: int, size: tuple[int, int] | None) -> Images:
    """A PIL image as 8-bit pixels.

    Args:
        image: a ``PIL.Image.Image`` of any mode of 1, 8 or 16 bits per channel; transparency is dropped.
        channels: 1 for grey, 3 for red, green and blue.
        size: height and width to resize to (bilinear); ``None`` keeps the image's own.

    Returns:
        ``[C, H, W]``.

    Raises:
        ValueError: pixels of 32 bits, whose range is unknown.
        OSError, SyntaxError: the image's file is corrupt.
    """
    from PIL import Image

    if image.mode.startswith("I;16"):
        # Pillow would clip 16-bit grey to white; its upper 8 bits are the picture.
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    elif image.mode in ("I", "F"):
        raise ValueError(f"pixels of mode {image.mode!r} (32 bits) have no known range; save them with 8 bits")
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    image = image.convert("L" if channels == 1 else "RGB")
    if size is not None and (image.height, image.width) != size:
        image = image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    pixels = np.asarray(image, dtype=np.uint8)
    return pixels[None] if channels == 1 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def as_size(size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    """A definition's ``size`` as height and width."""
    return (size, size) if isinstance(size, int) else size


@contextlib.contextmanager
def download_bars(name: str) -> Iterator[None]:
    """Replace the bars of torchvision's downloads by ours, which are drawn on a terminal only."""
    utils: Any = importlib.import_module("torchvision.datasets.utils")

    @contextlib.contextmanager
    def tqdm(total: float | None = None, **_: object) -> Iterator[SimpleNamespace]:
        with bar(f"downloading {name} (bytes)", total) as drawn:
            yield SimpleNamespace(update=drawn.advance)

    original = getattr(utils, "tqdm", None)
    if original is None:  # a torchvision that draws in another way keeps it
        yield
        return
    utils.tqdm = tqdm
    try:
        yield
    finally:
        utils.tqdm = original


class OwnFiles(ABC):
    """File or folder of the user's own, from the benchmark's table ``[datasets.NAME]``; it cannot be downloaded."""

    kind: ClassVar[str]

    def __init__(self, definition: Any, name: str) -> None:
        self.definition = definition
        self.name = name
        self.path: Path = definition.path

    @property
    def summary(self) -> str:
        """One line that says what it is."""
        return f"{self.kind} {self.path}"

    @abstractmethod
    def info(self, root: Path | None) -> DatasetInfo:
        """Shape and sizes; a :class:`DataError` where the files are missing or unfit."""

    @abstractmethod
    def load(self, root: Path | None) -> RawDataset:
        """Read it into memory; a :class:`DataError` where the files are missing or unfit."""

    @abstractmethod
    def checksum(self) -> str:
        """SHA-256 that identifies the files, without decoding them."""

    def state(self, root: Path | None) -> DatasetState:
        """Whether the set can be used, as far as :meth:`info` can tell; ``root`` plays no part."""
        if not self.path.exists():
            return DatasetState("missing", self.path)
        files = [self.path] if self.path.is_file() else [file for file in self.path.rglob("*") if file.is_file()]
        size = sum(file.stat().st_size for file in files)
        try:
            self.info(root)
        except DataError as error:
            return DatasetState("corrupt", self.path, size, error.what)
        return DatasetState("complete", self.path, size)

    def fetch(self, root: Path) -> None:
        """Refuse: the user's own files cannot be downloaded."""
        raise DataError(
            f"data set {self.name!r} is your own and cannot be downloaded",
            where=str(self.path),
            remedy="put the files there by hand",
        )

    def missing(self) -> DataMissingError:
        """The error of a path that does not exist."""
        return DataMissingError(
            f"data set {self.name!r} is missing",
            where=str(self.path),
            remedy="correct its 'path' in the benchmark file (relative paths start from that file), "
            "or put the data there",
        )
