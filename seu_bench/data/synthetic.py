"""Made-up data sets that have the shape and the classes of real ones: for trials without the real ones' files."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from seu_bench.data.dataset import DatasetInfo, Images, Labels, RawDataset, RawSplit, count_labels, require_memory

#: Side of the coarse grid that a class's prototype is blown up from.
GRID = 4


def synthetic_dataset(info: DatasetInfo, seed: int, scale: float = 0.02) -> RawDataset:
    """A learnable data set with the shape and the classes of a real one, and ``scale`` of its images of each class.

    Each class has a smooth random prototype; each image is its class's prototype shifted by a pixel or two, made
    brighter or darker, and disturbed. The nearest class mean is right more than nine times in ten, and not always.
    ``seed`` and ``info.name`` decide every pixel. Classes without training images stay without.
    """
    digest = hashlib.sha256(f"{info.name}:{seed}".encode()).digest()
    generator = np.random.default_rng(int.from_bytes(digest[:16], "little"))
    # One picture per class, with a margin on each side that shifts can draw from.
    reach = 1 if min(info.height, info.width) < 16 else 2
    shape = info.num_classes, info.channels, info.height + 2 * reach, info.width + 2 * reach
    occurs = np.asarray(info.train_per_class or (1,) * info.num_classes) > 0
    sizes_of_splits = []
    splits = (info.train_per_class, info.num_train, 30), (info.test_per_class, info.num_test, 10)
    for per_class, total, least in splits:  # at least so many, so that each task can be learned and judged at any scale
        real = np.asarray(per_class or total / max(1, occurs.sum()))
        sizes_of_splits.append(np.where(occurs, np.maximum(least, np.rint(scale * real)), 0).astype(np.int64))
    require_memory(info.name, int(np.sum(sizes_of_splits)), (info.channels, info.height, info.width))
    if info.kind != "image":
        points = generator.standard_normal((info.num_classes, info.channels), dtype=np.float32)
        train, test = (_synthetic_samples(info, points, sizes, generator) for sizes in sizes_of_splits)
        return RawDataset(count_labels(info, train.labels, test.labels), train, test)
    require_memory(info.name, info.num_classes, shape[1:], bytes_per_pixel=4)
    prototypes = _smooth(shape, generator)
    train, test = (_split(prototypes, sizes, generator, reach) for sizes in sizes_of_splits)
    return RawDataset(count_labels(info, train.labels, test.labels), train, test)


def _synthetic_samples(
    info: DatasetInfo, points: NDArray[np.float32], sizes: NDArray[np.int64], generator: np.random.Generator
) -> RawSplit:
    """Features around the point of each class, or tokens of which half are from its own part of the vocabulary."""
    labels: Labels = generator.permutation(np.repeat(np.arange(len(sizes), dtype=np.int64), sizes))
    shape, whole = (len(labels), info.channels), info.vocabulary or 1
    if info.kind == "features":
        return RawSplit(points[labels] + generator.standard_normal(shape, dtype=np.float32), labels)
    own = labels[:, None] * whole // len(sizes) + generator.integers(max(1, whole // len(sizes)), size=shape)
    return RawSplit(np.where(generator.random(shape) < 0.5, own, generator.integers(whole, size=shape)), labels)


def _smooth(shape: tuple[int, ...], generator: np.random.Generator) -> NDArray[np.float32]:
    """Smooth, standardised pictures of ``shape`` ``[N, C, H, W]``; channels share most of their variance."""
    count, channels, height, width = shape
    coarse = generator.standard_normal((count, channels, GRID, GRID), dtype=np.float32)
    shared = generator.standard_normal((count, 1, GRID, GRID), dtype=np.float32)
    coarse = np.float32(np.sqrt(0.15)) * coarse + np.float32(np.sqrt(0.85)) * shared
    # One matrix product per axis is bilinear interpolation.
    pictures = np.matmul(np.matmul(_blow_up(height), coarse), _blow_up(width).T)
    result: NDArray[np.float32] = pictures / np.float32(pictures.std() if count > 1 else 0.7)
    return result


def _blow_up(length: int) -> NDArray[np.float32]:
    """The matrix ``[length, GRID]`` that interpolates linearly from the grid to ``length`` pixels."""
    place = np.linspace(0, GRID - 1, length)
    matrix: NDArray[np.float32] = np.maximum(0, 1 - np.abs(place[:, None] - np.arange(GRID))).astype(np.float32)
    return matrix


def _split(
    prototypes: NDArray[np.float32], sizes: NDArray[np.int64], generator: np.random.Generator, reach: int
) -> RawSplit:
    labels: Labels = generator.permutation(np.repeat(np.arange(len(sizes), dtype=np.int64), sizes))
    # [class, C, down, right, H, W]: every place that a picture can be shifted to.
    height, width = (length - 2 * reach for length in prototypes.shape[2:])
    shifted = np.lib.stride_tricks.sliding_window_view(prototypes, (height, width), axis=(2, 3))
    images: Images = np.empty((len(labels), prototypes.shape[1], height, width), dtype=np.uint8)
    for start in range(0, len(labels), 2048):  # bounds the memory that the noise takes
        images[start : start + 2048] = _pictures(shifted, labels[start : start + 2048], generator)
    return RawSplit(images, labels)


def _pictures(shifted: NDArray[np.float32], labels: Labels, generator: np.random.Generator) -> Images:
    """Images ``[N, C, H, W]`` of the given labels ``[N]``."""
    count = len(labels)
    down, right = generator.binomial(shifted.shape[2] - 1, 0.5, size=(2, count))
    picture = shifted[labels, :, down, right]
    contrast = generator.uniform(0.8, 1.2, size=(count, 1, 1, 1)).astype(np.float32)
    brightness = generator.normal(0, 0.15, size=(count, 1, 1, 1)).astype(np.float32)
    picture = picture * contrast + brightness
    # Noise of single pixels averages out over an image; what is smooth makes classes hard to tell apart.
    picture += np.float32(0.45) * _smooth(picture.shape, generator)
    picture += np.float32(0.35) * generator.standard_normal(picture.shape, dtype=np.float32)
    return np.clip(np.round(128 + 45 * picture), 0, 255).astype(np.uint8)
