"""The data sets that benchmarks can name. A table and light factories: NumPy and torch wait until a set is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from seu_bench.plugin.registration import deferred

from .class_names import CIFAR10, CIFAR100, DIGITS, DTD, EMNIST_LETTERS, FASHION_MNIST, KMNIST

if TYPE_CHECKING:
    from seu_bench.data import DatasetSource


@dataclass(frozen=True)
class Official:
    """Description of an official set, known without its files.

    Attributes:
        class_name: its class in ``torchvision.datasets``.
        shape: channels, height and width.
        train, test: images per class; a label that never occurs has 0.
        split: the constructor's ``split``, for EMNIST.
        other_sizes: training and test images of other official editions.
        md5: of the unpacked idx files, by name, where known.
        class_names: of the labels from 0.
    """

    name: str
    class_name: str
    shape: tuple[int, int, int]
    train: tuple[int, ...]
    test: tuple[int, ...]
    split: str | None = None
    other_sizes: tuple[tuple[int, int], ...] = ()
    md5: Mapping[str, str] = field(default_factory=dict)
    class_names: tuple[str, ...] = DIGITS

    def __call__(self) -> DatasetSource:
        """The source that reads it."""
        from seu_bench.data import DatasetInfo
        from seu_bench.data.sources.official import TorchvisionSource

        known = DatasetInfo(
            self.name,
            *self.shape,
            num_classes=len(self.train),
            num_train=sum(self.train),
            num_test=sum(self.test),
            train_per_class=self.train,
            test_per_class=self.test,
            class_names=self.class_names,
        )
        arguments = {"split": self.split} if self.split else {}
        return TorchvisionSource(
            f"torchvision.datasets.{self.class_name}", known, self.class_name, arguments, self.other_sizes, self.md5
        )


@dataclass(frozen=True)
class Textures:
    """DTD's first official split, every image resized to a square: 80 training images of each class and 40 for testing.

    Attributes:
        size: height and width in pixels.
    """

    size: int = 32

    def __call__(self) -> DatasetSource:
        """The source that reads it; its shape and sizes are known without its files."""
        from seu_bench.config.benchmark import TorchvisionDefinition
        from seu_bench.data import DatasetInfo
        from seu_bench.data.sources.known_class import KnownClassSource

        train = {"split": "train", "partition": 1}, {"split": "val", "partition": 1}
        definition = TorchvisionDefinition(
            kind="torchvision",
            class_name="DTD",
            size=self.size,
            channels=3,
            train=train,
            test={"split": "test", "partition": 1},
        )
        each, tested = (80,) * len(DTD), (40,) * len(DTD)
        sizes = len(DTD), sum(each), sum(tested), each, tested, DTD
        return KnownClassSource(definition, DatasetInfo("dtd", 3, self.size, self.size, *sizes))


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

#: Every named set.
DATASETS: dict[str, DatasetSource] = {
    "digits": light(
        "1,797 handwritten digits, 8x8 grey, 10 classes; comes with scikit-learn",
        deferred("seu_bench.data.sources.digits:DigitsSource"),
    ),
    "mnist": light(
        "MNIST: 70,000 handwritten digits, 28x28 grey, 10 classes",
        Official(
            "mnist",
            "MNIST",
            _GREY,
            (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
            (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
            md5={
                "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
                "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
                "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
                "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
            },
        ),
    ),
    "fashion_mnist": light(
        "Fashion-MNIST: 70,000 articles of clothing, 28x28 grey, 10 classes",
        Official(
            "fashion_mnist",
            "FashionMNIST",
            _GREY,
            _TRAIN,
            _TEST,
            md5={
                "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
                "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
                "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
                "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
            },
            class_names=FASHION_MNIST,
        ),
    ),
    "kmnist": light(
        "Kuzushiji-MNIST: 70,000 cursive Japanese characters, 28x28 grey, 10 classes",
        Official("kmnist", "KMNIST", _GREY, _TRAIN, _TEST, class_names=KMNIST),
    ),
    # Labels are 1..26 as in the files, so that label 0 is a class without images. The pictures are transposed as in
    # the files. The edition of 2017 had fewer images than the one that torchvision downloads now.
    "emnist_letters": light(
        "EMNIST letters: 145,600 handwritten letters, 28x28 grey, labels 1..26, transposed as in its files",
        Official(
            "emnist_letters",
            "EMNIST",
            _GREY,
            (0, *(4800,) * 26),
            (0, *(800,) * 26),
            split="letters",
            other_sizes=((88_800, 14_800),),
            class_names=EMNIST_LETTERS,
        ),
    ),
    "svhn": light(
        "SVHN: 99,289 cropped house numbers, 32x32 colour, 10 classes (without the extra set)",
        Official(
            "svhn",
            "SVHN",
            _COLOUR,
            (4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659),
            (1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595),
        ),
    ),
    "cifar10": light(
        "CIFAR-10: 60,000 photographs, 32x32 colour, 10 classes",
        Official("cifar10", "CIFAR10", _COLOUR, (5000,) * 10, _TEST, class_names=CIFAR10),
    ),
    "cifar100": light(
        "CIFAR-100: 60,000 photographs, 32x32 colour, 100 classes (fine labels)",
        Official("cifar100", "CIFAR100", _COLOUR, (500,) * 100, (100,) * 100, class_names=CIFAR100),
    ),
    "dtd": light(
        "DTD: 5,640 pictures of textures, resized to 32x32 colour, 47 classes; training and validation set train",
        Textures(),
    ),
}
