"""The data sets that benchmarks can name. A table and light factories: NumPy and torch wait until a set is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from seu_bench.plugin.registration import Deferred

from .class_names import CIFAR10, CIFAR100, DIGITS, DTD, EMNIST_LETTERS, FASHION_MNIST, KMNIST

if TYPE_CHECKING:
    from seu_bench.data import DatasetSource


def official(
    name: str,
    class_name: str,
    shape: tuple[int, int, int],
    train_per_class: tuple[int, ...],
    test_per_class: tuple[int, ...],
    class_names: tuple[str, ...] = DIGITS,
    md5: Mapping[str, str] | None = None,
    **definition: Any,
) -> Callable[[], DatasetSource]:
    """Describe an official set, known without its files.

    Args:
        name: of the data set.
        class_name: its class in ``torchvision.datasets``.
        shape: channels, height and width.
        train_per_class, test_per_class: images per class; a label that never occurs has 0.
        class_names: of the labels from 0.
        md5: of the unpacked idx files, by name, where known.
        definition: further keys of ``[datasets.NAME]``.

    Returns:
        What builds the source that reads it.
    """

    def build() -> DatasetSource:
        from seu_bench.config.benchmark import TorchvisionDefinition
        from seu_bench.data import DatasetInfo
        from seu_bench.data.sources import TorchvisionSource

        sizes = len(train_per_class), sum(train_per_class), sum(test_per_class)
        known = DatasetInfo(name, *shape, *sizes, train_per_class, test_per_class, class_names)
        table = TorchvisionDefinition(kind="torchvision", class_name=class_name, **definition)
        return TorchvisionSource(table, name, known, md5)

    return build


class _LightSource:
    """A data set that builds its real source when it is used, and not to be listed."""

    def __init__(self, summary: str, build: Callable[[], DatasetSource]) -> None:
        self.summary = summary
        self.build = build

    def __getattr__(self, name: str) -> Any:
        if name not in ("info", "state", "load", "fetch"):
            raise AttributeError(name)
        return getattr(self.build(), name)


def light(summary: str, build: Callable[[], DatasetSource]) -> DatasetSource:
    """The source that ``build`` returns, built when anything but its summary is asked for."""
    return cast("DatasetSource", _LightSource(summary, build))


_GREY, _COLOUR = (1, 28, 28), (3, 32, 32)
_TRAIN, _TEST = (6000,) * 10, (1000,) * 10
_MNIST_SIZES = (
    (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
    (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
)
_MNIST_MD5 = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}
_FASHION_MD5 = {
    "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
    "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
    "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
    "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
}
_SVHN_SIZES = (
    (4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659),
    (1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595),
)
_LETTERS: dict[str, Any] = {"train": {"split": "letters"}, "test": {"split": "letters"}}
#: DTD's first official split, every image resized to a square; training and validation images train.
_TEXTURES: dict[str, Any] = {
    "size": 32,
    "channels": 3,
    "train": ({"split": "train", "partition": 1}, {"split": "val", "partition": 1}),
    "test": {"split": "test", "partition": 1},
}

#: Every named set.
DATASETS: dict[str, DatasetSource] = {
    "digits": light(
        "1,797 handwritten digits, 8x8 grey, 10 classes; comes with scikit-learn",
        Deferred("seu_bench.data.sources:DigitsSource"),
    ),
    "mnist": light(
        "MNIST: 70,000 handwritten digits, 28x28 grey, 10 classes",
        official("mnist", "MNIST", _GREY, *_MNIST_SIZES, md5=_MNIST_MD5),
    ),
    "fashion_mnist": light(
        "Fashion-MNIST: 70,000 articles of clothing, 28x28 grey, 10 classes",
        official("fashion_mnist", "FashionMNIST", _GREY, _TRAIN, _TEST, FASHION_MNIST, _FASHION_MD5),
    ),
    "kmnist": light(
        "Kuzushiji-MNIST: 70,000 cursive Japanese characters, 28x28 grey, 10 classes",
        official("kmnist", "KMNIST", _GREY, _TRAIN, _TEST, KMNIST),
    ),
    # Labels are 1..26 as in the files, so that label 0 is a class without images; pictures are transposed as there.
    "emnist_letters": light(
        "EMNIST letters: 145,600 handwritten letters, 28x28 grey, labels 1..26, transposed as in its files",
        official(
            *("emnist_letters", "EMNIST", _GREY, (0, *(4800,) * 26), (0, *(800,) * 26), EMNIST_LETTERS), **_LETTERS
        ),
    ),
    "svhn": light(
        "SVHN: 99,289 cropped house numbers, 32x32 colour, 10 classes (without the extra set)",
        official("svhn", "SVHN", _COLOUR, *_SVHN_SIZES),
    ),
    "cifar10": light(
        "CIFAR-10: 60,000 photographs, 32x32 colour, 10 classes",
        official("cifar10", "CIFAR10", _COLOUR, (5000,) * 10, _TEST, CIFAR10),
    ),
    "cifar100": light(
        "CIFAR-100: 60,000 photographs, 32x32 colour, 100 classes (fine labels)",
        official("cifar100", "CIFAR100", _COLOUR, (500,) * 100, (100,) * 100, CIFAR100),
    ),
    "dtd": light(
        "DTD: 5,640 pictures of textures, resized to 32x32 colour, 47 classes; training and validation set train",
        official("dtd", "DTD", _COLOUR, (80,) * len(DTD), (40,) * len(DTD), DTD, **_TEXTURES),
    ),
}
