"""Folders of images: one folder per class, or a well-known data set as it is unpacked.

torchvision's ``make_dataset`` is not used: it lists nested folders in another order and follows hidden ones, which
would change fingerprints and held-out images, and importing it takes seconds where files are only counted.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from seu_bench.config.benchmark import FolderDefinition
from seu_bench.data.dataset import (
    DatasetInfo,
    Images,
    RawDataset,
    counted,
    default_data_root,
    hold_out,
    one_line,
)
from seu_bench.data.decoding import NAMED, Split, as_pixels, in_file, in_memory
from seu_bench.data.own_files import OwnFiles
from seu_bench.errors import DataCorruptError, DataMissingError

#: Formats of images, which are recognised by content. Pillow knows others, some of which start programs to read them.
IMAGE_FORMATS: Final = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TGA", "TIFF", "WEBP")
#: Endings of image files; by others, such as Thumbs.db and desktop.ini, files are left out, as torchvision does.
IMAGE_ENDINGS: Final = (
    ".apng", ".bmp", ".dib", ".gif", ".j2k", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg", ".jpx", ".pbm", ".pgm", ".png",
    ".pnm", ".ppm", ".tga", ".tif", ".tiff", ".webp",
)  # fmt: skip

#: Names of folders that hold splits, not classes.
_SPLITS: Final = frozenset({"train", "training", "test", "testing", "val", "valid", "validation"})

Splits: TypeAlias = tuple[DatasetInfo, Split, Split]


class FolderSource(OwnFiles):
    """A folder with one folder of images per class, or with two such folders called ``train`` and ``test``.

    Classes are the sorted names of their folders. Hidden files are left out, and so are those whose names do not end
    like an image's, which is said when the images are loaded; every other file must be an image.
    """

    kind = "images of the folder"

    def info(self, root: Path | None) -> DatasetInfo:
        """Shape and sizes; files are counted, not opened."""
        return self._splits()[0]

    def load(self, root: Path | None) -> RawDataset:
        """Decode, convert and resize every image, or find them decoded on disk where the definition says so."""
        info, train, test = self._splits()
        self._warn_of_other_files()

        def decode(path: Path) -> Images:
            from PIL import Image

            with Image.open(path, formats=IMAGE_FORMATS) as image:
                return as_pixels(image, info.channels, (info.height, info.width))

        if self.definition.cache == "disk":
            place = f"{self.path} {self.definition.layout} {self.definition.test_fraction}"
            return in_file(info, train, test, decode, default_data_root(root), place)
        return in_memory(info, train, test, decode)

    def files(self, folder: Path | None = None) -> list[Path]:
        """All image files below a folder, sorted by relative path."""
        return [file for file in super().files(folder) if file.suffix.lower() in IMAGE_ENDINGS]

    def _warn_of_other_files(self) -> None:
        used = {*self.files()}
        places = [file.relative_to(self.path) for file in super().files() if file not in used]
        if left_out := [place.as_posix() for place in places if len(place.parts) > 1]:
            shown = ", ".join(left_out[:NAMED]) + (f" and {len(left_out) - NAMED:,} more" if left_out[NAMED:] else "")
            what = f"data set {self.name!r} leaves out {len(left_out):,} files that do not end like images: {shown}"
            warnings.warn(what, stacklevel=2)

    def _splits(self) -> Splits:
        self._check_folder()
        folders = [self.path / "train", self.path / "test"]
        try:
            is_parted = all(folder.is_dir() for folder in folders)
        except OSError as error:
            raise self.unreadable(self.path, error) from error
        if not is_parted:
            names, whole = self._classes(self.path)
            train, test = self._parted(whole, names)
        else:
            (names, train), (others, test) = map(self._classes, folders)
            if other := sorted({*names} ^ {*others}):
                what = f"has other classes in train than in test ({', '.join(other)} in one only)"
                raise self.fault(what, "give both the same class folders")
        return counted(self._blank(len(names), names), train[1], test[1]), train, test

    def _check_folder(self) -> None:
        self.check_exists()
        if not self.path.is_dir():
            raise self.fault("is a file, not a folder of class folders", "name the folder, or use kind = 'npz'")

    def _blank(self, classes: int, names: Sequence[str] | None) -> DatasetInfo:
        """Description of a set of so many classes, before its images are counted."""
        size = self.definition.size
        height, width = (size, size) if isinstance(size, int) else size
        names = None if names is None else tuple(names)
        return DatasetInfo(self.name, self.definition.channels, height, width, classes, 0, 0, class_names=names)

    def _parted(self, whole: Split, names: Sequence[str] | None) -> tuple[Split, Split]:
        """Training and test images of a set that has no test images of its own."""
        paths, labels = whole
        held = hold_out(labels, self.definition.test_fraction, self.name, str(self.path), names)
        train, test = (([paths[row] for row in rows], labels[rows]) for rows in held)
        return train, test

    def _classes(self, folder: Path) -> tuple[list[str], Split]:
        """Names of the classes in ``folder``, and their image files."""
        try:
            names = sorted(each.name for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))
        except OSError as error:
            raise self.unreadable(folder, error) from error
        files = [self.files(folder / name) for name in names]
        fill = "make one folder of images (.png, .jpg, ...) per class"
        if not any(files):
            raise self.fault(f"has no images in class folders below {folder}", fill)
        if empty := ", ".join(name for name, members in zip(names, files, strict=True) if not members):
            raise self.fault(f"has class folders without images in {folder}: {empty}", f"{fill}, or delete them")
        if all(name.casefold() in _SPLITS for name in names):
            # Of such folders a benchmark would be made whose classes are "train" and "val".
            what = f"has folders in the place of classes in {folder} that are called like splits: {', '.join(names)}"
            raise self.fault(what, "call the folders of the splits train and test; there is no third one")
        if len(names) < 2:
            raise self.fault(f"has only one class folder in {folder}: {names[0]}", "at least 2 classes are needed")
        labels = np.repeat(np.arange(len(names), dtype=np.int64), [len(members) for members in files])
        return names, ([path for members in files for path in members], labels)


# --------------------------------------------------------------------------------------------------- well-known folders

#: Path below the folder, class, and whether it is a test image; ``None``: the set has no test images of its own.
Placed: TypeAlias = tuple[str, int, bool | None]
#: Of the sorted paths below a set's folder and what reads one as text: those that are images.
Place: TypeAlias = Callable[[Sequence[str], Callable[[str], str]], Iterator[Placed]]


class Layout(NamedTuple):
    """A data set as its authors pack it.

    Attributes:
        folder: where it is below the data root, if the benchmark does not say.
        url: where it can be had.
        classes: how many.
        images: training and test images together.
        tests: of these for testing; ``None``: the set does not say which.
        place: of the files, those that are images.
        names: of the classes, where they mean something to people.
    """

    folder: str
    url: str
    classes: int
    images: int
    tests: int | None
    place: Place
    names: tuple[str, ...] | None = None


def _by_folder(named: Mapping[str, str]) -> dict[str, int]:
    """Labels of paths whose classes have these names: numbers of the sorted names."""
    number = {name: place for place, name in enumerate(sorted({*named.values()}))}
    return {path: number[name] for path, name in named.items()}


def _matching(pattern: str, paths: Sequence[str]) -> dict[str, str]:
    """What ``pattern`` finds in the paths that it matches."""
    return {path: found[1] for path in paths if (found := re.fullmatch(pattern, path))}


def _class_folders(pattern: str) -> Place:
    def place(paths: Sequence[str], _read: Callable[[str], str]) -> Iterator[Placed]:
        return ((path, label, None) for path, label in _by_folder(_matching(pattern, paths)).items())

    return place


def _tiny_imagenet(paths: Sequence[str], read: Callable[[str], str]) -> Iterator[Placed]:
    """Validation images are tests, since labels of the test images were never published."""
    named = _matching(r"train/([^/]+)/images/[^/]+\.JPEG", paths)
    tests = _matching(r"val/(n\d+)/(?:images/)?[^/]+\.JPEG", paths)  # as scripts of the field sort them
    if "val/val_annotations.txt" in paths:
        rows = [line.split() for line in read("val/val_annotations.txt").splitlines() if len(line.split()) > 1]
        known, there = {f"val/images/{row[0]}": row[1] for row in rows}, {*paths}
        tests |= {path: name for path, name in known.items() if path in there}
    classes = {*named.values()}
    labels = _by_folder(named | {path: name for path, name in tests.items() if name in classes})
    return ((path, labels[path], path in tests) for path in paths if path in labels)


def _cub200(_paths: Sequence[str], read: Callable[[str], str]) -> Iterator[Placed]:
    is_train = dict(line.split() for line in read("train_test_split.txt").splitlines() if line.strip())
    for line in read("images.txt").splitlines():
        number, _, path = line.strip().partition(" ")
        if number:
            yield f"images/{path}", int(path[:3]) - 1, is_train[number] == "0"


def _core50(paths: Sequence[str], _read: Callable[[str], str]) -> Iterator[Placed]:
    """Sessions 3, 7 and 10 are for testing, as its authors have it."""
    for path in paths:
        if found := re.fullmatch(r"s(\d+)/o(\d+)/[^/]+\.png", path):
            yield path, int(found[2]) - 1, int(found[1]) in (3, 7, 10)


def _dtd(paths: Sequence[str], read: Callable[[str], str]) -> Iterator[Placed]:
    """The first of its ten splits, training and validation images together."""
    tests = {f"images/{line.strip()}" for line in read("labels/test1.txt").splitlines()}
    labels = _by_folder(_matching(r"images/([^/]+)/[^/]+\.jpg", paths))
    return ((path, label, path in tests) for path, label in labels.items())


_CORE50: Final = (
    "plug adapter", "mobile phone", "scissor", "light bulb", "can", "glass", "ball", "marker", "cup", "remote control",
)  # fmt: skip
_EUROSAT: Final = (
    "AnnualCrop", "Forest", "HerbaceousVegetation", "Highway", "Industrial", "Pasture", "PermanentCrop", "Residential",
    "River", "SeaLake",
)  # fmt: skip

LAYOUTS: Final[Mapping[str, Layout]] = {
    "core50": Layout(
        *("core50_128x128", "https://vlomonaco.github.io/core50/", 50, 164_866, 44_972, _core50),
        names=tuple(f"{name} {number}" for name in _CORE50 for number in range(1, 6)),
    ),
    "cub200": Layout(
        "CUB_200_2011", "https://www.vision.caltech.edu/datasets/cub_200_2011/", 200, 11_788, 5_794, _cub200
    ),
    "dtd": Layout("dtd/dtd", "https://www.robots.ox.ac.uk/~vgg/data/dtd/", 47, 5_640, 1_880, _dtd),
    "eurosat": Layout(
        *("eurosat/2750", "https://zenodo.org/records/7711810", 10, 27_000, None),
        place=_class_folders(r"([A-Z][A-Za-z]+)/[^/]+\.jpg"),
        names=_EUROSAT,
    ),
    "imagenet_r": Layout(
        *("imagenet-r", "https://github.com/hendrycks/imagenet-r", 200, 30_000, None),
        place=_class_folders(r"(n\d+)/[^/]+\.(?:jpg|JPEG|png)"),
    ),
    "tiny_imagenet": Layout(
        *("tiny-imagenet-200", "http://cs231n.stanford.edu/tiny-imagenet-200.zip", 200, 110_000, 10_000),
        place=_tiny_imagenet,
    ),
}


class KnownFolderSource(FolderSource):
    """A well-known set as its authors pack it, which can be described without its files and must be whole.

    Args:
        definition: the table; without a path the set is looked for below the data root.
        name: of the data set.
        root: folder of data sets.
    """

    def __init__(self, definition: FolderDefinition, name: str, root: Path | None = None) -> None:
        self.layout = known = LAYOUTS[definition.layout]
        path = definition.path or default_data_root(root) / known.folder
        super().__init__(definition.model_copy(update={"path": path}), name)
        self.summary = f"{known.images:,} images of {known.classes} classes in the folder {known.folder}"

    def info(self, root: Path | None) -> DatasetInfo:
        """Shape and sizes, as they are known; of sets without test images of their own, about so many."""
        known = self.layout
        tests = int(self.definition.test_fraction * known.images) if known.tests is None else known.tests
        blank: dict[str, Any] = vars(self._blank(known.classes, known.names))
        return DatasetInfo(**{**blank, "num_train": known.images - tests, "num_test": tests})

    def check(self, root: Path | None) -> None:
        """Raise the error of files that are not those that must be there; they are counted, not opened."""
        self._splits()

    def checksum(self) -> str:
        """SHA-256 of what there must be; whether it is there is seen when the set is loaded."""
        known = self.definition.layout, self.layout.classes, self.layout.images
        return hashlib.sha256(repr(known).encode()).hexdigest()

    def fetch(self, root: Path) -> None:
        """Refuse: archives of these sets are unpacked by hand, which their licences are read with."""
        raise self.fault("is not downloaded by seu-bench", f"unpack it there, from {self.layout.url}")

    def files(self, folder: Path | None = None) -> list[Path]:
        """All files, texts among them."""
        return OwnFiles.files(self, folder)

    def _splits(self) -> Splits:
        known, anew = self.layout, f"unpack it anew, from {self.layout.url}"
        if not self.path.exists():
            remedy = f"unpack it there, from {known.url}; or name its folder by 'path' in [datasets.{self.name}]"
            raise self.fault("is missing", remedy, DataMissingError)
        self._check_folder()
        paths = [file.relative_to(self.path).as_posix() for file in self.files()]
        try:
            placed = list(known.place(paths, lambda name: (self.path / name).read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError) as error:
            what = f"is not laid out as its authors pack it: {one_line(error)}"
            raise self.fault(what, anew, DataCorruptError) from error
        there = {*paths}
        if absent := [path for path, *_ in placed if path not in there]:
            what = f"lacks {len(absent):,} images, the first of which is {absent[0]}"
            raise self.fault(what, anew, DataCorruptError)
        classes = len({label for _, label, _ in placed})
        if (len(placed), classes) != (known.images, known.classes):
            what = f"has {len(placed):,} images of {classes} classes, and must have {known.images:,} of {known.classes}"
            raise self.fault(what, anew, DataCorruptError)
        chosen = {
            kind: ([self.path / path for path, _, of in placed if of is kind], np.array(labels, dtype=np.int64))
            for kind in (False, True, None)
            for labels in [[label for _, label, of in placed if of is kind]]
        }
        train, test = (chosen[False], chosen[True]) if chosen[True][0] else self._parted(chosen[None], known.names)
        return counted(self._blank(known.classes, known.names), train[1], test[1]), train, test
