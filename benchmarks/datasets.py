"""The data sets that benchmarks can name. A table and light factories: NumPy and torch wait until a set is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from seu_bench.plugin.registration import Deferred

if TYPE_CHECKING:
    from seu_bench.data import DatasetSource

# Names of classes in the order of their labels, as torchvision and the files have them.
DIGITS = "0, 1, 2, 3, 4, 5, 6, 7, 8, 9"
LETTERS = ", ".join(["N/A", *"abcdefghijklmnopqrstuvwxyz"])  # the files have no label 0
KMNIST = "o, ki, su, tsu, na, ha, ma, ya, re, wo"
FASHION = "T-shirt/top, Trouser, Pullover, Dress, Coat, Sandal, Shirt, Sneaker, Bag, Ankle boot"
CIFAR10 = "airplane, automobile, bird, cat, deer, dog, frog, horse, ship, truck"
CIFAR100 = """
apple, aquarium_fish, baby, bear, beaver, bed, bee, beetle, bicycle, bottle, bowl, boy, bridge, bus, butterfly, camel,
can, castle, caterpillar, cattle, chair, chimpanzee, clock, cloud, cockroach, couch, crab, crocodile, cup, dinosaur,
dolphin, elephant, flatfish, forest, fox, girl, hamster, house, kangaroo, keyboard, lamp, lawn_mower, leopard, lion,
lizard, lobster, man, maple_tree, motorcycle, mountain, mouse, mushroom, oak_tree, orange, orchid, otter, palm_tree,
pear, pickup_truck, pine_tree, plain, plate, poppy, porcupine, possum, rabbit, raccoon, ray, road, rocket, rose, sea,
seal, shark, shrew, skunk, skyscraper, snail, snake, spider, squirrel, streetcar, sunflower, sweet_pepper, table, tank,
telephone, television, tiger, tractor, train, trout, tulip, turtle, wardrobe, whale, willow_tree, wolf, woman, worm"""
DTD = """
banded, blotchy, braided, bubbly, bumpy, chequered, cobwebbed, cracked, crosshatched, crystalline, dotted, fibrous,
flecked, freckled, frilly, gauzy, grid, grooved, honeycombed, interlaced, knitted, lacelike, lined, marbled, matted,
meshed, paisley, perforated, pitted, pleated, polka-dotted, porous, potholed, scaly, smeared, spiralled, sprinkled,
stained, stratified, striped, studded, swirly, veined, waffled, woven, wrinkled, zigzagged"""


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


def official(
    name: str,
    class_name: str,
    files: str,
    shape: tuple[int, int, int],
    per_class: tuple[tuple[int, ...], tuple[int, ...]],
    class_names: str,
    summary: str,
    sha256: str | None = None,
    **definition: Any,
) -> DatasetSource:
    """Describe an official set of torchvision's, known without its files.

    Args:
        name: of the data set.
        class_name: its class in ``torchvision.datasets``.
        files: where its files lie below the data root, as a pattern.
        shape: channels, height and width.
        per_class: training and test images of each class; a label that never occurs has 0.
        class_names: of the labels from 0, with commas between them.
        summary: one line that says what it is.
        sha256: of the loaded set, where torchvision has no checksum of its files.
        definition: further keys of ``[datasets.NAME]``.
    """

    def build() -> DatasetSource:
        from seu_bench.config.benchmark import TorchvisionDefinition
        from seu_bench.data import DatasetInfo
        from seu_bench.data.sources import TorchvisionSource

        names = tuple(each.strip() for each in class_names.split(","))
        sizes = len(names), sum(per_class[0]), sum(per_class[1])
        known = DatasetInfo(name, *shape, *sizes, *per_class, names)
        table = TorchvisionDefinition(kind="torchvision", class_name=class_name, **definition)
        return TorchvisionSource(table, name, known, files, sha256)

    return light(summary, build)


_GREY, _COLOUR = (1, 28, 28), (3, 32, 32)
_EQUAL = (6000,) * 10, (1000,) * 10
_MNIST = (
    (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
    (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
)
_SVHN = (
    (4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659),
    (1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595),
)
_LETTERS: dict[str, Any] = {"train": {"split": "letters"}, "test": {"split": "letters"}}
#: DTD's first official split; training and validation images train.
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
    "mnist": official(
        *("mnist", "MNIST", "MNIST/raw/*-ubyte", _GREY, _MNIST, DIGITS),
        "MNIST: 70,000 handwritten digits, 28x28 grey, 10 classes",
        "592cc3dfd12010e1780bf15de97185b42372bda3e511f1523c3af39f8b6df78b",
    ),
    "fashion_mnist": official(
        *("fashion_mnist", "FashionMNIST", "FashionMNIST/raw/*-ubyte", _GREY, _EQUAL, FASHION),
        "Fashion-MNIST: 70,000 articles of clothing, 28x28 grey, 10 classes",
        "0660bde77cbfdf34c87ca9fdf85f8717bc3e563821d8bfa4c96aa01b3ba24285",
    ),
    "kmnist": official(
        *("kmnist", "KMNIST", "KMNIST/raw/*-ubyte", _GREY, _EQUAL, KMNIST),
        "Kuzushiji-MNIST: 70,000 cursive Japanese characters, 28x28 grey, 10 classes",
    ),
    # Labels are 1..26 as in the files, so that label 0 is a class without images; pictures are transposed as there.
    "emnist_letters": official(
        *("emnist_letters", "EMNIST", "EMNIST/raw/emnist-letters-*-ubyte", _GREY),
        *(((0, *(4800,) * 26), (0, *(800,) * 26)), LETTERS),
        "EMNIST letters: 145,600 handwritten letters, 28x28 grey, labels 1..26, transposed as in its files",
        **_LETTERS,
    ),
    "svhn": official(
        *("svhn", "SVHN", "*_32x32.mat", _COLOUR, _SVHN, DIGITS),
        "SVHN: 99,289 cropped house numbers, 32x32 colour, 10 classes (without the extra set)",
    ),
    "cifar10": official(
        *("cifar10", "CIFAR10", "cifar-10-batches-py/*", _COLOUR, ((5000,) * 10, (1000,) * 10), CIFAR10),
        "CIFAR-10: 60,000 photographs, 32x32 colour, 10 classes",
    ),
    "cifar100": official(
        *("cifar100", "CIFAR100", "cifar-100-python/*", _COLOUR, ((500,) * 100, (100,) * 100), CIFAR100),
        "CIFAR-100: 60,000 photographs, 32x32 colour, 100 classes (fine labels)",
    ),
    "dtd": official(
        *("dtd", "DTD", "dtd/dtd/images/*/*", _COLOUR, ((80,) * 47, (40,) * 47), DTD),
        "DTD: 5,640 pictures of textures, resized to 32x32 colour, 47 classes; training and validation set train",
        **_TEXTURES,
    ),
}
