"""Well-known data sets that are folders of images, as they are unpacked: what lies where, and how much of it.

torchvision has no class for most of them. A layout tells of each file, by its path alone, which class it shows and
whether it is a test image, and knows how many there must be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

#: Path below the folder, class, and whether it is a test image; ``None``: the set has no test images of its own.
Placed: TypeAlias = tuple[str, int, bool | None]


class Tree(NamedTuple):
    """Files of a set: their sorted paths below its folder, and what reads one of them as text."""

    paths: Sequence[str]
    read: Callable[[str], str]


@dataclass(frozen=True)
class Layout:
    """A data set as its authors pack it.

    Attributes:
        folder: where it is below the data root, if the benchmark does not say.
        url: where it can be had.
        classes: how many.
        images: training and test images together.
        tests: of these for testing; ``None``: the set does not say which.
        place: of the files, those that are images.
        names: of the classes, where they mean something to people.
        per_class, tests_per_class: the same of each class, where it is known.
    """

    folder: str
    url: str
    classes: int
    images: int
    tests: int | None
    place: Callable[[Tree], Iterator[Placed]]
    names: tuple[str, ...] | None = None
    per_class: tuple[int, ...] | None = None
    tests_per_class: tuple[int, ...] | None = None

    def counts(self, test_fraction: float) -> tuple[int, int, tuple[int, ...] | None, tuple[int, ...] | None]:
        """Training images, test images, and both of each class, where ``test_fraction`` of each class is held out if
        the set has no test images of its own.
        """
        tests, each = self.tests, self.tests_per_class
        if tests is None:
            if self.per_class is not None:
                each = tuple(max(1, int(test_fraction * count)) for count in self.per_class)
            tests = sum(each) if each is not None else int(test_fraction * self.images)
        trained = None
        if self.per_class is not None and each is not None:
            trained = tuple(count - held for count, held in zip(self.per_class, each, strict=True))
        return self.images - tests, tests, trained, each


def _by_folder(paths: Sequence[str], part: Callable[[str], str | None]) -> Iterator[tuple[str, int]]:
    """Paths of which ``part`` gives the name of a class, numbered by the sorted names."""
    named = [(path, name) for path in paths if (name := part(path)) is not None]
    number = {name: place for place, name in enumerate(sorted({name for _, name in named}))}
    return ((path, number[name]) for path, name in named)


def _matched(pattern: str) -> Callable[[str], str | None]:
    compiled = re.compile(pattern)

    def part(path: str) -> str | None:
        found = compiled.fullmatch(path)
        return found[1] if found else None

    return part


def _tiny_imagenet(tree: Tree) -> Iterator[Placed]:
    """Validation images are tests, since labels of the test images were never published."""
    listed = "val/val_annotations.txt"
    known = {}
    if listed in tree.paths:
        known = {
            f"val/images/{row[0]}": row[1] for line in tree.read(listed).splitlines() if len(row := line.split()) > 1
        }
    in_train, in_val = _matched(r"train/([^/]+)/images/[^/]+\.JPEG"), _matched(r"val/(n\d+)/(?:images/)?[^/]+\.JPEG")
    classes = {name for path in tree.paths if (name := in_train(path))}
    for path, label in _by_folder(
        tree.paths, lambda it: in_train(it) or (name if (name := known.get(it) or in_val(it)) in classes else None)
    ):
        yield path, label, path.startswith("val/")


def _cub200(tree: Tree) -> Iterator[Placed]:
    is_train = dict(line.split() for line in tree.read("train_test_split.txt").splitlines() if line.strip())
    for line in tree.read("images.txt").splitlines():
        number, _, path = line.strip().partition(" ")
        if number:
            yield f"images/{path}", int(path[:3]) - 1, is_train[number] == "0"


def _core50(tree: Tree) -> Iterator[Placed]:
    """Sessions 3, 7 and 10 are for testing, as its authors have it."""
    for path in tree.paths:
        found = re.fullmatch(r"s(\d+)/o(\d+)/[^/]+\.png", path)
        if found:
            yield path, int(found[2]) - 1, int(found[1]) in (3, 7, 10)


def _dtd(tree: Tree) -> Iterator[Placed]:
    """The first of its ten splits, training and validation images together."""
    tests = {f"images/{line.strip()}" for line in tree.read("labels/test1.txt").splitlines()}
    for path, label in _by_folder(tree.paths, _matched(r"images/([^/]+)/[^/]+\.jpg")):
        yield path, label, path in tests


def _class_folders(pattern: str) -> Callable[[Tree], Iterator[Placed]]:
    def place(tree: Tree) -> Iterator[Placed]:
        return ((path, label, None) for path, label in _by_folder(tree.paths, _matched(pattern)))

    return place


_CORE50: Final = (
    "plug adapter", "mobile phone", "scissor", "light bulb", "can", "glass", "ball", "marker", "cup", "remote control",
)  # fmt: skip
_EUROSAT: Final[Mapping[str, int]] = {
    "AnnualCrop": 3000, "Forest": 3000, "HerbaceousVegetation": 3000, "Highway": 2500, "Industrial": 2500,
    "Pasture": 2000, "PermanentCrop": 2500, "Residential": 3000, "River": 2500, "SeaLake": 3000,
}  # fmt: skip

LAYOUTS: Final[Mapping[str, Layout]] = {
    "core50": Layout(
        "core50_128x128",
        "https://vlomonaco.github.io/core50/",
        classes=50,
        images=164_866,
        tests=44_972,
        place=_core50,
        names=tuple(f"{name} {number}" for name in _CORE50 for number in range(1, 6)),
    ),
    "cub200": Layout(
        "CUB_200_2011", "https://www.vision.caltech.edu/datasets/cub_200_2011/", 200, 11_788, 5_794, place=_cub200
    ),
    "dtd": Layout(
        "dtd/dtd",
        "https://www.robots.ox.ac.uk/~vgg/data/dtd/",
        classes=47,
        images=5_640,
        tests=1_880,
        place=_dtd,
        per_class=(120,) * 47,
        tests_per_class=(40,) * 47,
    ),
    "eurosat": Layout(
        "eurosat/2750",
        "https://zenodo.org/records/7711810",
        classes=10,
        images=27_000,
        tests=None,
        place=_class_folders(r"([A-Z][A-Za-z]+)/[^/]+\.jpg"),
        names=tuple(_EUROSAT),
        per_class=tuple(_EUROSAT.values()),
    ),
    "imagenet_r": Layout(
        "imagenet-r",
        "https://github.com/hendrycks/imagenet-r",
        classes=200,
        images=30_000,
        tests=None,
        place=_class_folders(r"(n\d+)/[^/]+\.(?:jpg|JPEG|png)"),
    ),
    "tiny_imagenet": Layout(
        "tiny-imagenet-200",
        "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
        classes=200,
        images=110_000,
        tests=10_000,
        place=_tiny_imagenet,
        per_class=(550,) * 200,
        tests_per_class=(50,) * 200,
    ),
}
