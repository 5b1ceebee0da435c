"""The idx format of the MNIST family: four bytes of magic, big-endian sizes, then one byte per value.

Files are checked here before anybody uses them, because torchvision itself accepts a damaged one.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np

from seu_bench.data.dataset import Labels

#: The third byte of the magic: unsigned bytes.
UNSIGNED_BYTE = 8


def shape_of(path: Path, axes: int) -> tuple[int, ...]:
    """The sizes that an idx file of unsigned bytes declares, after checking that the file holds exactly so much.

    Args:
        path: the unpacked file.
        axes: 3 for images ``[N, H, W]``, 1 for labels ``[N]``.

    Raises:
        ValueError: the file is not idx, has other axes, or is too short or too long; the text says which.
    """
    header = 4 + 4 * axes
    with path.open("rb") as file:
        head = file.read(header)
    if len(head) < header:
        raise ValueError(f"it ends after {len(head)} bytes, within its header of {header}")
    if tuple(head[:4]) != (0, 0, UNSIGNED_BYTE, axes):
        raise ValueError(f"it starts with {head[:4].hex()}, not with {bytes((0, 0, UNSIGNED_BYTE, axes)).hex()}")
    sizes: tuple[int, ...] = struct.unpack(f">{axes}I", head[4:])
    expected, found = header + math.prod(sizes), path.stat().st_size
    if found != expected:
        sort = "is truncated" if found < expected else "has bytes too many"
        raise ValueError(f"it {sort}: {found} bytes where its header announces {expected}")
    return sizes


def labels_of(path: Path) -> Labels:
    """The labels ``[N]`` of an idx file that :func:`shape_of` accepted."""
    return np.fromfile(path, dtype=np.uint8, offset=8).astype(np.int64)


def check_pair(images: Path, labels: Path, size: tuple[int, int], lowest: int, highest: int) -> int:
    """Check an image file and its label file against each other.

    Args:
        images, labels: the unpacked files.
        size: height and width that every image must have.
        lowest, highest: the labels that may occur.

    Returns:
        The number of images.

    Raises:
        ValueError: the text says what is wrong with which file.
    """
    shapes = []
    for path, axes in ((images, 3), (labels, 1)):
        try:
            shapes.append(shape_of(path, axes))
        except ValueError as error:
            raise ValueError(f"{path.name}: {error}") from error
    (count, *found), (label_count,) = shapes
    if tuple(found) != size:
        raise ValueError(f"{images.name}: its images are {found[0]}x{found[1]}, not {size[0]}x{size[1]}")
    if count != label_count:
        raise ValueError(f"{images.name} has {count} images, {labels.name} {label_count} labels")
    values = labels_of(labels)
    if count == 0 or values.min() < lowest or values.max() > highest:
        occur = f"{values.min()}..{values.max()}" if count else "none"
        raise ValueError(f"{labels.name}: its labels are {occur}, where {lowest}..{highest} are due")
    return count
