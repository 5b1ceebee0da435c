"""Folders of images: one folder per class, or the layout of a well-known data set.

torchvision's ``make_dataset`` is not used: it lists nested folders in another order and follows hidden ones, which
would change fingerprints and held-out images, and importing it takes seconds where files are only counted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from seu_bench.config.benchmark import FolderDefinition
from seu_bench.data.dataset import DatasetInfo, DatasetState, Images, Labels, RawDataset
from seu_bench.data.sources.common import as_pixels, counted, default_data_root, hold_out, one_line
from seu_bench.data.sources.decoding import in_file, in_memory
from seu_bench.data.sources.layouts import LAYOUTS, Layout, Tree
from seu_bench.data.sources.own_files import OwnFiles
from seu_bench.errors import DataCorruptError, DataError, DataMissingError

#: Formats of images, which are recognised by content. Pillow knows others, some of which start programs to read them.
IMAGE_FORMATS: Final = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TGA", "TIFF", "WEBP")

#: Names of folders that hold splits, not classes.
_SPLITS: Final = frozenset({"train", "training", "test", "testing", "val", "valid", "validation"})


class _Split(NamedTuple):
    """Image files of one split and their labels ``[N]``."""

    paths: Sequence[Path]
    labels: Labels
    classes: Sequence[str]


class FolderSource(OwnFiles):
    """A folder with one folder of images per class, or with two such folders called ``train`` and ``test``.

    Classes are the sorted names of their folders. Hidden files are passed over; every other file must be an image.
    """

    kind = "images of the folder"

    def info(self, root: Path | None) -> DatasetInfo:
        """Shape and sizes; files are counted, not opened."""
        return self._layout()[0]

    def load(self, root: Path | None) -> RawDataset:
        """Decode, convert and resize every image, or find them decoded on disk where the definition says so."""
        info, train, test = self._layout()
        splits = (train.paths, train.labels), (test.paths, test.labels)

        def decode(path: Path) -> Images:
            return self._pixels(path, info)

        if self.definition.cache == "disk":
            return in_file(info, *splits, decode, default_data_root(root))
        return in_memory(info, *splits, decode)

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
            raise self.fault(f"has no images in class folders below {folder}", "make one folder of images per class")
        empty = ", ".join(name for name, members in zip(names, files, strict=True) if not members)
        if empty:
            raise self.fault(f"has class folders without images in {folder}: {empty}", "fill or delete them")
        if names and all(name.casefold() in _SPLITS for name in names):
            # Of such folders a benchmark would be made whose classes are "train" and "val".
            what = f"has folders in the place of classes in {folder} that are called like splits: {', '.join(names)}"
            raise self.fault(what, "call the folders of the splits train and test; there is no third one")
        if len(names) < 2:
            raise self.fault(f"has only one class folder in {folder}: {names[0]}", "at least 2 classes are needed")
        labels = np.repeat(np.arange(len(names), dtype=np.int64), [len(members) for members in files])
        return _Split([path for members in files for path in members], labels, names)

    def _pixels(self, path: Path, info: DatasetInfo) -> Images:
        from PIL import Image

        try:
            with Image.open(path, formats=IMAGE_FORMATS) as image:
                return as_pixels(image, info.channels, (info.height, info.width))
        except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
            what = f"has a file that is no usable image: {one_line(error)}"
            raise self.fault(what, "repair, convert or remove it", DataCorruptError, path) from error


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
