"""Shared by sources: the data root, errors, held-out test sets, pixels of PIL images, bars of downloads."""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seu_bench.data.dataset import DatasetInfo, Images, Labels, RawDataset, RawSplit
from seu_bench.errors import DataError
from seu_bench.utils.hardware import free_host_memory
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


def one_line(error: BaseException) -> str:
    """An exception's text on one line, its class's name where it has none."""
    return " ".join(str(error).split()) or type(error).__name__


def hold_out(
    labels: Labels, fraction: float, name: str, where: str | None = None, class_names: Sequence[str] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices of the training and of the test images, each ascending, for ``labels`` ``[N]`` without a test set.

    At least one image of each class is held out; which ones is the same in every run. The data set's ``name``, the
    file or folder ``where`` it is and the names of its classes are for messages.
    """
    generator = np.random.RandomState(0)  # fixed: which images are test images must not depend on a run's seed
    is_test = np.zeros(len(labels), dtype=bool)
    members = {int(label): np.flatnonzero(labels == label) for label in np.unique(labels)}
    if single := [label for label, found in members.items() if len(found) < 2]:
        known = class_names or ()
        called = [repr(known[label]) if label < len(known) else str(label) for label in single]
        shown = ", ".join(called[:20]) + (f" and {len(called) - 20} more" if len(called) > 20 else "")
        raise DataError(
            f"data set {name!r} has a single image of class {shown}, which cannot be both trained and tested on",
            where=where,
            remedy="give each class at least 2 images, or bring a test set of its own",
        )
    for found in members.values():
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


def channels_first(images: NDArray[Any]) -> NDArray[Any]:
    """Images ``[N, H, W]``, ``[N, H, W, C]`` or ``[N, C, H, W]`` as ``[N, C, H, W]``.

    A last axis of 1 or 3 entries is taken for the channels, whatever axis 1 has.
    """
    if images.ndim == 3:
        return images[:, None]
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2) if images.shape[3] in (1, 3) else images)


def wide_values(image: Any) -> NDArray[Any] | None:
    """Grey values ``[H, W]`` of a PIL image of 16 or 32 bits per pixel; ``None``: its pixels have 8 bits or fewer.

    Raises:
        ValueError: a value is not a number, or the image has channels of 16 bits.
    """
    if not image.mode.startswith(("I", "F")):
        if any(re.search(r";16[BLN]", str(tile.args)) for tile in getattr(image, "tile", [])):
            raise ValueError("its channels have 16 bits, of which Pillow reads the upper 8: save it with 8 bits")
        return None
    values = np.asarray(image)
    if not np.isfinite(values).all():
        raise ValueError("it has pixels that are no number, or infinite")
    return values


def as_pixels(
    image: Any, channels: int, size: tuple[int, int] | None, limits: tuple[float, float] | None = None
) -> Images:
    """A PIL image as 8-bit pixels ``[C, H, W]``; transparency is dropped.

    Args:
        channels: 1 for grey, 3 for red, green and blue.
        size: height and width to resize to (bilinear); ``None`` keeps the image's own.
        limits: grey values of 16 or 32 bits that become 0 and 255, of all images of a set; values beyond are cut.
            ``None``: it is a set of images with at most 8 bits per channel.

    Raises:
        ValueError: the image has other bits per pixel than its set.
        OSError, SyntaxError: the image's file is corrupt.
    """
    from PIL import Image

    values = wide_values(image)
    if values is not None:
        if limits is None:
            raise ValueError(
                f"its pixels are {values.min():g} to {values.max():g} (mode {image.mode}): "
                "more than 8 bits are scaled only in class folders in which all images have them"
            )
        low, high = limits
        scaled = (np.clip(values.astype(np.float64), low, high) - low) * (255 / (high - low))
        image = Image.fromarray(np.round(scaled).astype(np.uint8))
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    image = image.convert("L" if channels == 1 else "RGB")
    if size is not None and (image.height, image.width) != size:
        image = image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    pixels = np.asarray(image, dtype=np.uint8)
    return pixels[None] if channels == 1 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


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
