"""The data sets that a benchmark file defines under ``[datasets.NAME]``, and of these the folders of images.

torchvision's ``make_dataset`` is not used for folders: it lists nested folders in another order and follows hidden
ones, which would change fingerprints and held-out images, and importing it takes seconds where files are only counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from seu_bench.config.benchmark import DatasetDefinition, FolderDefinition, TorchvisionDefinition
from seu_bench.data.dataset import DatasetInfo, Images, Labels, RawDataset, RawSplit
from seu_bench.data.sources.common import as_pixels, counted, hold_out, one_line
from seu_bench.data.sources.npz import NpzSource
from seu_bench.data.sources.own_files import OwnFiles
from seu_bench.data.sources.torchvision_class import TorchvisionClassSource
from seu_bench.errors import DataCorruptError
from seu_bench.utils.progress import tracked

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
        """Decode, convert and resize every image."""
        info, *splits = self._layout()
        return RawDataset(info, *(RawSplit(self._pixels(split.paths, info), split.labels) for split in splits))

    def _layout(self) -> tuple[DatasetInfo, _Split, _Split]:
        self.check_exists()
        if not self.path.is_dir():
            raise self.fault("is a file, not a folder of class folders", "name the folder, or use kind = 'npz'")
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
            whole = self._split(self.path)
            train, test = (
                _Split([whole.paths[row] for row in rows], whole.labels[rows], whole.classes)
                for rows in hold_out(
                    whole.labels, self.definition.test_fraction, self.name, str(self.path), whole.classes
                )
            )
        size = self.definition.size
        height, width = (size, size) if isinstance(size, int) else size
        names = tuple(train.classes)
        blank = DatasetInfo(self.name, self.definition.channels, height, width, len(names), 0, 0, class_names=names)
        return counted(blank, train.labels, test.labels), train, test

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

    def _pixels(self, paths: Sequence[Path], info: DatasetInfo) -> Images:
        from PIL import Image

        pixels: Images = np.empty((len(paths), info.channels, info.height, info.width), dtype=np.uint8)
        for index, path in enumerate(tracked(paths, f"reading images of {self.name}")):
            try:
                with Image.open(path, formats=IMAGE_FORMATS) as image:
                    pixels[index] = as_pixels(image, info.channels, (info.height, info.width))
            except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
                what = f"has a file that is no usable image: {one_line(error)}"
                raise self.fault(what, "repair, convert or remove it", DataCorruptError, path) from error
        return pixels


def definition_source(definition: DatasetDefinition, name: str) -> OwnFiles | TorchvisionClassSource:
    """Source of a benchmark's table ``[datasets.NAME]``, whose paths are absolute."""
    if isinstance(definition, TorchvisionDefinition):
        return TorchvisionClassSource(definition, name)
    return (FolderSource if isinstance(definition, FolderDefinition) else NpzSource)(definition, name)
