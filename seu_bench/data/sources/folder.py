"""A folder of class folders of images as a data set.

torchvision's ``make_dataset`` is not used: it lists nested folders in another order and follows hidden ones, which
would change fingerprints and held-out images, and importing it takes seconds where files are only counted.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from seu_bench.data.dataset import DatasetInfo, Images, Labels, RawDataset, RawSplit
from seu_bench.data.sources.common import OwnFiles, as_pixels, as_size, counted, hold_out, one_line
from seu_bench.errors import DataCorruptError, DataError
from seu_bench.utils.progress import tracked


class _Files(NamedTuple):
    """Image files of one split and their labels ``[N]``."""

    paths: list[Path]
    labels: Labels


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
        train, test = (RawSplit(self._pixels(files.paths, info), files.labels) for files in splits)
        return RawDataset(info, train, test)

    def checksum(self) -> str:
        """SHA-256 over the sorted relative paths and sizes of all image files; nothing is opened."""
        if not self.path.is_dir():
            raise self.missing()
        digest = hashlib.sha256()
        for file in _files_below(self.path):
            digest.update(f"{file.relative_to(self.path).as_posix()}\0{file.stat().st_size}\n".encode())
        return digest.hexdigest()

    def _layout(self) -> tuple[DatasetInfo, _Files, _Files]:
        if not self.path.is_dir():
            if self.path.exists():
                raise self._refused("is a file, not a folder of class folders", "name the folder, or use kind = 'npz'")
            raise self.missing()
        folders = [self.path / "train", self.path / "test"]
        if all(folder.is_dir() for folder in folders):
            (train, classes), (test, test_classes) = map(self._class_files, folders)
            only = {"train": sorted({*classes} - {*test_classes}), "test": sorted({*test_classes} - {*classes})}
            faults = [f"only in {folder}: {', '.join(names)}" for folder, names in only.items() if names]
            if faults:
                raise self._refused(
                    f"has other classes in train than in test ({'; '.join(faults)})", "give both the same class folders"
                )
        else:
            files, classes = self._class_files(self.path)
            rows = hold_out(files.labels, self.definition.test_fraction, self.name)
            train, test = (_Files([files.paths[row] for row in part], files.labels[part]) for part in rows)
        size = as_size(self.definition.size) or (1, 1)
        blank = DatasetInfo(self.name, self.definition.channels, *size, len(classes), num_train=0, num_test=0)
        return counted(blank, train.labels, test.labels), train, test

    def _class_files(self, folder: Path) -> tuple[_Files, list[str]]:
        """Image files of ``folder`` by class, and the classes."""
        names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
        files = {name: _files_below(folder / name) for name in names}
        if not any(files.values()):
            raise self._refused(f"has no images in class folders below {folder}", "make one folder of images per class")
        empty = [name for name in names if not files[name]]
        if empty:
            raise self._refused(
                f"has class folders without images in {folder}: {', '.join(empty)}", "fill or delete them"
            )
        if len(names) < 2:
            raise self._refused(f"has only one class folder in {folder}: {names[0]}", "at least 2 classes are needed")
        labels = np.repeat(np.arange(len(names), dtype=np.int64), [len(members) for members in files.values()])
        return _Files([path for members in files.values() for path in members], labels), names

    def _refused(self, what: str, remedy: str) -> DataError:
        return DataError(f"data set {self.name!r} {what}", where=str(self.path), remedy=remedy)

    def _pixels(self, paths: list[Path], info: DatasetInfo) -> Images:
        from PIL import Image

        pixels: Images = np.empty((len(paths), info.channels, info.height, info.width), dtype=np.uint8)
        for index, path in enumerate(tracked(paths, f"reading images of {self.name}")):
            try:
                with Image.open(path) as image:
                    pixels[index] = as_pixels(image, info.channels, (info.height, info.width))
            except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
                raise DataCorruptError(
                    f"data set {self.name!r} has a file that is no usable image: {one_line(error)}",
                    where=str(path),
                    remedy="repair, convert or remove it",
                ) from error
        return pixels


def _files_below(folder: Path) -> list[Path]:
    """All files of a folder and its sub-folders, sorted by relative path; hidden ones are passed over."""
    relative = [file.relative_to(folder) for file in folder.rglob("*") if file.is_file()]
    seen = [path for path in relative if not any(part.startswith(".") for part in path.parts)]
    return [folder / path for path in sorted(seen, key=Path.as_posix)]
