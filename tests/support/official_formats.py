"""Small files in the official formats, so that the real reading code can be tested without the real data."""

from __future__ import annotations

import hashlib
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from seu_bench.data.dataset import Images, Labels, RawSplit


def random_split(count: int, shape: tuple[int, int, int], classes: int, seed: int = 0, first: int = 0) -> RawSplit:
    """Random images ``[count, *shape]`` whose labels go round from ``first`` to ``classes - 1``."""
    generator = np.random.default_rng(seed)
    images: Images = generator.integers(0, 256, size=(count, *shape), dtype=np.uint8)
    labels: Labels = first + np.arange(count, dtype=np.int64) % (classes - first)
    return RawSplit(images, labels)


def md5(path: Path) -> str:
    """The file's md5 in hexadecimal."""
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def write_idx(path: Path, array: NDArray[Any]) -> None:
    """``array`` of bytes as an idx file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(header + array.astype(np.uint8).tobytes())


def write_mnist_like(root: Path, class_name: str, train: RawSplit, test: RawSplit, split: str | None = None) -> None:
    """The four raw files of MNIST, FashionMNIST or KMNIST; with ``split``, EMNIST's."""
    prefixes = (f"emnist-{split}-train", f"emnist-{split}-test") if split else ("train", "t10k")
    for prefix, part in zip(prefixes, (train, test), strict=True):
        write_idx(root / class_name / "raw" / f"{prefix}-images-idx3-ubyte", part.images[:, 0])
        write_idx(root / class_name / "raw" / f"{prefix}-labels-idx1-ubyte", part.labels)


def write_svhn(root: Path, train: RawSplit, test: RawSplit) -> dict[str, str]:
    """``train_32x32.mat`` and ``test_32x32.mat``, digit 0 under label 10 as in the official files; their md5s."""
    import scipy.io

    savemat: Any = scipy.io.savemat  # type: ignore[attr-defined]
    root.mkdir(parents=True, exist_ok=True)
    sums = {}
    for name, part in (("train", train), ("test", test)):
        labels = np.where(part.labels == 0, 10, part.labels).astype(np.uint8)[:, None]
        path = root / f"{name}_32x32.mat"
        savemat(path, {"X": part.images.transpose(2, 3, 1, 0), "y": labels})
        sums[name] = md5(path)
    return sums


def write_cifar(root: Path, fine: bool, train: RawSplit, test: RawSplit) -> dict[str, str]:
    """CIFAR-10's five training batches, test batch and meta file, or CIFAR-100's three files; md5 by file name."""
    folder = root / ("cifar-100-python" if fine else "cifar-10-batches-py")
    folder.mkdir(parents=True, exist_ok=True)
    label_key = "fine_labels" if fine else "labels"
    names = ["train"] if fine else [f"data_batch_{number}" for number in range(1, 6)]
    parts = np.array_split(np.arange(len(train)), len(names))
    contents: dict[str, Any] = {
        name: {"data": train.images[rows].reshape(len(rows), -1), label_key: train.labels[rows].tolist()}
        for name, rows in zip(names, parts, strict=True)
    }
    test_name, meta_name = ("test", "meta") if fine else ("test_batch", "batches.meta")
    contents[test_name] = {"data": test.images.reshape(len(test), -1), label_key: test.labels.tolist()}
    contents[meta_name] = {"fine_label_names" if fine else "label_names": [str(i) for i in range(100 if fine else 10)]}
    for name, content in contents.items():
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))
    return {name: md5(folder / name) for name in contents}


def write_image(path: Path, grey: int, size: tuple[int, int] = (8, 6), mode: str = "RGB") -> None:
    """An image of one grey value."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (size[1], size[0]), grey).convert(mode).save(path)
