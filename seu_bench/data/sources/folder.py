"""A folder of class folders of images as a data set."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeAlias

import numpy as np

from seu_bench.config.benchmark import FolderDefinition
from seu_bench.data.dataset import DatasetInfo, Images, Labels, RawDataset, RawSplit
from seu_bench.data.sources.common import OwnFiles, as_pixels, as_size, counted, file_missing_error, hold_out, one_line
from seu_bench.errors import DataCorruptError, DataError
from seu_bench.utils.progress import tracked

#: Image files by class, both sorted.
ClassFiles: TypeAlias = dict[str, list[Path]]


class FolderSource(OwnFiles):
    """A folder with one folder of images per class, or with two such folders called ``train`` and ``test``.

    Classes are the sorted names of their folders. Hidden files are passed over; every other file must be an image.
    """

    def __init__(self, definition: FolderDefinition, name: str) -> None:
        super().__init__(name, definition.path, f"images of the folder {definition.path}")
        self.definition = definition

    def info(self, root: Path | None) -> DatasetInfo:
        """Shape and sizes; files are counted, not opened.

        Raises:
            DataMissingError: the folder does not exist.
            DataError: it is not laid out as it should be.
        """
        layout = self._layout()
        size = as_size(self.definition.size) or (1, 1)
        blank = DatasetInfo(
            self.name, self.definition.channels, *size, num_classes=len(layout.classes), num_train=0, num_test=0
        )
        return counted(blank, layout.train_labels, layout.test_labels)

    def load(self, root: Path | None) -> RawDataset:
        """Decode, convert and resize every image.

        Raises:
            DataMissingError: the folder does not exist.
            DataCorruptError: a file is no image; it is named.
            DataError: the folder is not laid out as it should be.
        """
        layout = self._layout()
        info = self.info(root)
        train = RawSplit(self._pixels(layout.train_files), layout.train_labels)
        return RawDataset(info, train, RawSplit(self._pixels(layout.test_files), layout.test_labels))

    def checksum(self) -> str:
        """SHA-256 over the sorted relative paths and sizes of all image files; nothing is opened.

        Raises:
            DataMissingError: the folder does not exist.
        """
        if not self.path.is_dir():
            raise file_missing_error(self.name, self.path)
        digest = hashlib.sha256()
        for file in _files_below(self.path):
            digest.update(f"{file.relative_to(self.path).as_posix()}\0{file.stat().st_size}\n".encode())
        return digest.hexdigest()

    def _layout(self) -> _Layout:
        if not self.path.is_dir():
            if self.path.exists():
                self._refuse("is a file, not a folder of class folders", "name the folder, or use kind = 'npz'")
            raise file_missing_error(self.name, self.path)
        train_folder, test_folder = self.path / "train", self.path / "test"
        if not (train_folder.is_dir() and test_folder.is_dir()):
            files, labels, classes = _labelled(self._class_files(self.path))
            train, test = hold_out(labels, self.definition.test_fraction, self.name)
            return _Layout(classes, [files[i] for i in train], labels[train], [files[i] for i in test], labels[test])
        train_classes, test_classes = self._class_files(train_folder), self._class_files(test_folder)
        if list(train_classes) != list(test_classes):
            only = [
                f"only in {folder}: {', '.join(sorted(mine - others))}"
                for folder, mine, others in (
                    ("train", train_classes.keys(), test_classes.keys()),
                    ("test", test_classes.keys(), train_classes.keys()),
                )
                if mine - others
            ]
            self._refuse(
                f"has other classes in train than in test ({'; '.join(only)})", "give both the same class folders"
            )
        train_files, train_labels, classes = _labelled(train_classes)
        test_files, test_labels, _ = _labelled(test_classes)
        return _Layout(classes, train_files, train_labels, test_files, test_labels)

    def _class_files(self, folder: Path) -> ClassFiles:
        classes = {
            entry.name: _files_below(entry)
            for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
            if entry.is_dir() and not entry.name.startswith(".")
        }
        if not any(classes.values()):
            self._refuse(f"has no images in class folders below {folder}", "make one folder of images per class")
        empty = [name for name, files in classes.items() if not files]
        if empty:
            self._refuse(f"has class folders without images in {folder}: {', '.join(empty)}", "fill or delete them")
        if len(classes) < 2:
            self._refuse(
                f"has only one class folder in {folder}: {', '.join(classes)}", "at least 2 classes are needed"
            )
        return classes

    def _refuse(self, what: str, remedy: str) -> NoReturn:
        raise DataError(f"data set {self.name!r} {what}", where=str(self.path), remedy=remedy)

    def _pixels(self, files: list[Path]) -> Images:
        from PIL import Image

        size = as_size(self.definition.size) or (1, 1)
        pixels: Images = np.empty((len(files), self.definition.channels, *size), dtype=np.uint8)
        for index, file in enumerate(tracked(files, f"reading images of {self.name}")):
            try:
                with Image.open(file) as image:
                    pixels[index] = as_pixels(image, self.definition.channels, size)
            except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
                raise DataCorruptError(
                    f"data set {self.name!r} has a file that is no usable image: {one_line(error)}",
                    where=str(file),
                    remedy="repair, convert or remove it",
                ) from error
        return pixels


@dataclass(frozen=True)
class _Layout:
    classes: list[str]
    train_files: list[Path]
    train_labels: Labels
    test_files: list[Path]
    test_labels: Labels


def _files_below(folder: Path) -> list[Path]:
    """All files of a folder and its sub-folders, sorted by relative path; hidden ones are passed over."""
    files = (file for file in folder.rglob("*") if file.is_file())
    seen = [file for file in files if not any(part.startswith(".") for part in file.relative_to(folder).parts)]
    return sorted(seen, key=lambda file: file.relative_to(folder).as_posix())


def _labelled(classes: ClassFiles) -> tuple[list[Path], Labels, list[str]]:
    files = [file for members in classes.values() for file in members]
    labels = np.repeat(np.arange(len(classes), dtype=np.int64), [len(members) for members in classes.values()])
    return files, labels, list(classes)
