"""8-bit images in a file, read where they are asked for.

Positioned reads into a batch's own array, and no memory map: the pages of a map count as the process's memory, and a
disk that fails in the middle of one kills it.
"""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from seu_bench.errors import DataCorruptError

#: Bytes of images that are held at once by what goes through all of them.
BLOCK_BYTES: Final = 2 * 1024**2


def blocks(images: NDArray[Any] | ImageFile) -> Iterator[NDArray[Any]]:
    """Images ``[N, C, H, W]`` in their order, a few MiB at a time."""
    step = max(1, BLOCK_BYTES // max(1, math.prod(images.shape[1:])))
    for start in range(0, len(images), step):
        yield images[start : start + step]


@dataclass(frozen=True)
class ImageFile:
    """Images ``[N, C, H, W]`` (uint8) that lie in a file one after another; of them nothing is kept in memory.

    Attributes:
        path: the file.
        first: number of the first image in the file.
        count: images.
        image_shape: channels, height and width.

    Example:
        ``ImageFile(path, 0, 1000, (3, 64, 64))[[5, 3]].shape == (2, 3, 64, 64)``
    """

    path: Path
    first: int
    count: int
    image_shape: tuple[int, int, int]

    dtype = np.dtype(np.uint8)

    def __len__(self) -> int:
        return self.count

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Images, channels, height and width."""
        return (self.count, *self.image_shape)

    @cached_property
    def _descriptor(self) -> _Descriptor:
        return _Descriptor(self.path)

    def __getitem__(self, rows: Any) -> NDArray[np.uint8]:
        """Read the images of some numbers, ``[n]`` or a slice, in that order.

        Raises:
            DataCorruptError: the file has become shorter, or cannot be read.
        """
        numbers = np.arange(self.count, dtype=np.int64)[rows]
        found: NDArray[np.uint8] = np.empty((len(numbers), *self.image_shape), dtype=np.uint8)
        # Neighbours are read together.
        ends = [*(1 + np.flatnonzero(np.diff(numbers) != 1)).tolist(), len(numbers)]
        start = 0
        for stop in ends if len(numbers) else ():
            self._read(found[start:stop], (self.first + int(numbers[start])) * math.prod(self.image_shape))
            start = stop
        return found

    def _read(self, into: NDArray[np.uint8], offset: int) -> None:
        left = into.reshape(-1).data
        try:
            while left:
                got = os.preadv(self._descriptor.number, [left], offset)
                if not got:
                    raise OSError(errno.EIO, "it ends too early")
                left, offset = left[got:], offset + got
        except OSError as error:
            raise DataCorruptError(
                f"decoded images cannot be read: {error.strerror or error}",
                where=str(self.path),
                remedy="delete this file, and the images are decoded anew",
            ) from error

    def __deepcopy__(self, memo: dict[int, object]) -> ImageFile:
        return self  # what lies in a file is not copied with a learner that holds on to it

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_descriptor"}


class _Descriptor:
    """A file opened for reading, closed with the last :class:`ImageFile` that reads it."""

    def __init__(self, path: Path) -> None:
        self.number = os.open(path, os.O_RDONLY)

    def __del__(self) -> None:
        if hasattr(self, "number"):
            os.close(self.number)
