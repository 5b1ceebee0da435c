"""Folders of images: one folder per class, or the layout of a well-known data set.

torchvision's ``make_dataset`` is not used: it lists nested folders in another order and follows hidden ones, which
would change fingerprints and held-out images, and importing it takes seconds where files are only counted.
"""

from __future__ import annotations

import contextlib
import hashlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from seu_bench.config.benchmark import FolderDefinition
from seu_bench.data.dataset import DatasetInfo, DatasetState, Labels, RawDataset
from seu_bench.data.sources.common import as_pixels, counted, default_data_root, hold_out, one_line, wide_values
from seu_bench.data.sources.decoding import NAMED, Decode, Result, decoded_in_order, image_errors, in_file, in_memory
from seu_bench.data.sources.layouts import LAYOUTS, Layout, Tree
from seu_bench.data.sources.own_files import OwnFiles
from seu_bench.errors import DataCorruptError, DataError, DataMissingError

#: Formats of images, which are recognised by content. Pillow knows others, some of which start programs to read them.
IMAGE_FORMATS: Final = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TGA", "TIFF", "WEBP")
#: Endings of image files; by others, such as Thumbs.db and desktop.ini, files are left out, as torchvision does.
IMAGE_ENDINGS: Final = (
    ".apng", ".bmp", ".dib", ".gif", ".j2k", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg", ".jpx", ".pbm", ".pgm", ".png",
    ".pnm", ".ppm", ".tga", ".tif", ".tiff", ".webp",
)  # fmt: skip

#: Names of folders that hold splits, not classes.
_SPLITS: Final = frozenset({"train", "training", "test", "testing", "val", "valid", "validation"})


class _Split(NamedTuple):
    """Image files of one split and their labels ``[N]``."""

    paths: Sequence[Path]
    labels: Labels
    classes: Sequence[str]


class FolderSource(OwnFiles):
    """A folder with one folder of images per class, or with two such folders called ``train`` and ``test``.

    Classes are the sorted names of their folders. Hidden files are left out, and so are those whose names do not end
    like an image's, which is said when the images are loaded; every other file must be an image. Grey images of 16 or
    32 bits are scaled to 8 by the range of all training images.
    """

    kind = "images of the folder"

    def info(self, root: Path | None) -> DatasetInfo:
        """Shape and sizes; files are counted, not opened."""
        return self._layout()[0]

    def load(self, root: Path | None) -> RawDataset:
        """Decode, convert and resize every image, or find them decoded on disk where the definition says so."""
        info, train, test = self._layout()
        splits = (train.paths, train.labels), (test.paths, test.labels)
        self._warn_of_other_files()

        def decoder() -> Decode:
            limits = self._limits(train.paths, test.paths)
            size = info.height, info.width
            return lambda path: self._opened(path, lambda image: as_pixels(image, info.channels, size, limits))

        if self.definition.cache == "disk":
            place = f"{self.path} {self.definition.layout} {self.definition.test_fraction}"
            return in_file(info, *splits, decoder, default_data_root(root), place)
        return in_memory(info, *splits, decoder())

    def files(self, folder: Path | None = None) -> list[Path]:
        """All image files below a folder, sorted by relative path; well-known sets have texts, too."""
        found = super().files(folder)
        if self.definition.layout != "class_folders":
            return found
        return [file for file in found if _ends_like_an_image(file)]

    def _warn_of_other_files(self) -> None:
        places = [file.relative_to(self.path) for file in super().files() if not _ends_like_an_image(file)]
        left_out = [place.as_posix() for place in places if len(place.parts) > 1]
        if left_out and self.definition.layout == "class_folders":
            shown = ", ".join(left_out[:NAMED]) + (f" and {len(left_out) - NAMED:,} more" if left_out[NAMED:] else "")
            what = f"data set {self.name!r} leaves out {len(left_out):,} files that do not end like images: {shown}"
            warnings.warn(what, stacklevel=2)

    def _layout(self) -> tuple[DatasetInfo, _Split, _Split]:
        self._check_folder()
        folders = [self.path / "train", self.path / "test"]
        try:
            is_parted = all(folder.is_dir() for folder in folders)
        except OSError as error:
            raise self._unreadable(self.path, error) from error
        if is_parted:
            train, test = map(self._split, folders)
            only = {"train": {*train.classes} - {*test.classes}, "test": {*test.classes} - {*train.classes}}
            faults = [f"only in {folder}: {', '.join(sorted(names))}" for folder, names in only.items() if names]
            if faults:
                what = f"has other classes in train than in test ({'; '.join(faults)})"
                raise self.fault(what, "give both the same class folders")
        else:
            train, test = self._parted(self._split(self.path))
        names = tuple(train.classes)
        return counted(self._blank(len(names), names), train.labels, test.labels), train, test

    def _check_folder(self) -> None:
        self.check_exists()
        if not self.path.is_dir():
            raise self.fault("is a file, not a folder of class folders", "name the folder, or use kind = 'npz'")

    def _blank(self, classes: int, names: tuple[str, ...] | None) -> DatasetInfo:
        """Description of a set of so many classes, before its images are counted."""
        size = self.definition.size
        height, width = (size, size) if isinstance(size, int) else size
        return DatasetInfo(self.name, self.definition.channels, height, width, classes, 0, 0, class_names=names)

    def _parted(self, whole: _Split) -> tuple[_Split, _Split]:
        """Training and test images of a set that has no test images of its own."""
        rows = hold_out(whole.labels, self.definition.test_fraction, self.name, str(self.path), whole.classes)
        train, test = (_Split([whole.paths[row] for row in of], whole.labels[of], whole.classes) for of in rows)
        return train, test

    def _split(self, folder: Path) -> _Split:
        """Image files of ``folder`` by class."""
        try:
            names = sorted(each.name for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))
        except OSError as error:
            raise self._unreadable(folder, error) from error
        files = [self.files(folder / name) for name in names]
        if not any(files):
            raise self.fault(
                f"has no images in class folders below {folder}",
                "make one folder of images (.png, .jpg, ...) per class",
            )
        empty = ", ".join(name for name, members in zip(names, files, strict=True) if not members)
        if empty:
            raise self.fault(
                f"has class folders without images in {folder}: {empty}",
                "fill them with images (.png, .jpg, ...), or delete them",
            )
        if names and all(name.casefold() in _SPLITS for name in names):
            # Of such folders a benchmark would be made whose classes are "train" and "val".
            what = f"has folders in the place of classes in {folder} that are called like splits: {', '.join(names)}"
            raise self.fault(what, "call the folders of the splits train and test; there is no third one")
        if len(names) < 2:
            raise self.fault(f"has only one class folder in {folder}: {names[0]}", "at least 2 classes are needed")
        labels = np.repeat(np.arange(len(names), dtype=np.int64), [len(members) for members in files])
        return _Split([path for members in files for path in members], labels, names)

    def _opened(self, path: Path, use: Callable[[Any], Result]) -> Result:
        from PIL import Image

        with Image.open(path, formats=IMAGE_FORMATS) as image:
            return use(image)

    def _limits(self, train: Sequence[Path], test: Sequence[Path]) -> tuple[float, float] | None:
        """Least and greatest grey value of the training images, where images have more than 8 bits."""

        def range_and_mean(path: Path) -> tuple[float, float, float]:
            values = self._opened(path, wide_values)
            if values is None:
                raise ValueError("its pixels have 8 bits, and those of other images more: save all alike")
            return float(values.min()), float(values.max()), float(values.mean())

        # Sets of 8-bit images are not read twice: an image of more bits among them is refused when it is decoded.
        for path in train:
            with contextlib.suppress(*image_errors()):
                if self._opened(path, wide_values) is None:
                    return None
                break
        else:
            return None
        found = np.array(list(decoded_in_order([*train, *test], range_and_mean, self.name)))
        known, others = found[: len(train)], found[len(train) :]
        low, high, mean = known[:, 0].min(), known[:, 1].max(), known[:, 2].mean()
        if low == high:
            raise self.fault(f"has the value {low:g} in every pixel of its training images", "bring other images")
        said = f"{low:g} to {high:g} in training images (mean {mean:g}) become 0 to 255"
        if others[:, 0].min() < low or others[:, 1].max() > high:
            said += f"; test images have {others[:, 0].min():g} to {others[:, 1].max():g}, and are cut to that"
        warnings.warn(f"data set {self.name!r} has pixels of more than 8 bits: {said}", stacklevel=2)
        return float(low), float(high)


def _ends_like_an_image(file: Path) -> bool:
    return file.suffix.lower() in IMAGE_ENDINGS


class KnownFolderSource(FolderSource):
    """A well-known set as its authors pack it, which can be described without its files and must be whole.

    Args:
        definition: the table, with the path of the folder.
        name: of the data set.
        layout: what lies where.
    """

    kind = "images of the folder"

    def __init__(self, definition: FolderDefinition, name: str, layout: Layout) -> None:
        super().__init__(definition, name)
        self.layout = layout
        self.summary = f"{layout.images:,} images of {layout.classes} classes in the folder {layout.folder}"

    def info(self, root: Path | None) -> DatasetInfo:
        """Shape and sizes, as they are known; of sets without test images of their own, about so many."""
        known = self.layout
        train, test, trained, tested = known.counts(self.definition.test_fraction)
        sizes = {"num_train": train, "num_test": test, "train_per_class": trained, "test_per_class": tested}
        return replace(self._blank(known.classes, known.names), **sizes)  # type: ignore[arg-type]

    def state(self, root: Path | None) -> DatasetState:
        """Whether the files are those that must be there; they are counted, not opened."""
        try:
            files = self._layout()[1:]
        except DataMissingError:
            return DatasetState("missing", self.path)
        except DataError as error:
            return DatasetState("corrupt", self.path, None, error.what)
        return DatasetState("complete", self.path, sum(path.stat().st_size for it in files for path in it.paths))

    def checksum(self) -> str:
        """SHA-256 of what there must be; whether it is there is seen when the set is loaded."""
        known = self.definition.layout, self.layout.classes, self.layout.images
        return hashlib.sha256(repr(known).encode()).hexdigest()

    def fetch(self, root: Path) -> None:
        """Refuse: archives of these sets are unpacked by hand, which their licences are read with."""
        raise self.fault("is not downloaded by seu-bench", f"unpack it there, from {self.layout.url}")

    def check_exists(self) -> None:
        """Raise the error of a folder that does not exist, which says where the set can be had."""
        if not self.path.exists():
            remedy = f"unpack it there, from {self.layout.url}; or name its folder by 'path' in [datasets.{self.name}]"
            raise self.fault("is missing", remedy, DataMissingError)

    def _layout(self) -> tuple[DatasetInfo, _Split, _Split]:
        self._check_folder()
        known = self.layout
        paths = [file.relative_to(self.path).as_posix() for file in self.files()]
        try:
            placed = list(known.place(Tree(paths, self._text)))
        except (OSError, ValueError, KeyError) as error:
            what = f"is not laid out as its authors pack it: {one_line(error)}"
            raise self.fault(what, f"unpack it anew, from {known.url}", DataCorruptError) from error
        splits: dict[bool | None, _Split] = {
            kind: _Split(
                [self.path / path for path, _, of in placed if of is kind],
                np.array([label for _, label, of in placed if of is kind], dtype=np.int64),
                known.names or (),
            )
            for kind in (False, True, None)
        }
        there = {*paths}
        absent = [path for path, _, _ in placed if path not in there]
        classes = len({label for _, label, _ in placed})
        if absent or (len(placed), classes) != (known.images, known.classes):
            what = f"has {len(placed):,} images of {classes} classes, and must have {known.images:,} of {known.classes}"
            if absent:
                what = f"lacks {len(absent):,} images, the first of which is {absent[0]}"
            raise self.fault(what, f"unpack it anew, from {known.url}", DataCorruptError)
        train, test = (splits[False], splits[True]) if splits[True].paths else self._parted(splits[None])
        return counted(self._blank(known.classes, known.names), train.labels, test.labels), train, test

    def _text(self, name: str) -> str:
        return (self.path / name).read_text(encoding="utf-8")


def known_folder(definition: FolderDefinition, name: str, root: Path | None = None) -> KnownFolderSource:
    """Source of a well-known set, below the data root unless the definition has its path."""
    layout = LAYOUTS[definition.layout]
    path = definition.path or default_data_root(root) / layout.folder
    return KnownFolderSource(definition.model_copy(update={"path": path}), name, layout)
