"""The data sets that a benchmark file defines under ``[datasets.NAME]``; folders and ``.npz`` files of the user's own.

torchvision's ``make_dataset`` is not used for folders: it lists nested folders in another order and follows hidden
ones, which would change fingerprints and held-out images, and importing it takes seconds where files are only counted.
"""

from __future__ import annotations

import hashlib
import os
import stat
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seu_bench.config.benchmark import DatasetDefinition, FolderDefinition, TorchvisionDefinition
from seu_bench.data.dataset import DatasetInfo, DatasetState, Images, Labels, RawDataset, RawSplit
from seu_bench.data.sources.common import as_pixels, channels_first, counted, described, hold_out, one_line
from seu_bench.data.sources.torchvision_class import TorchvisionClassSource
from seu_bench.errors import DataCorruptError, DataError, DataMissingError
from seu_bench.utils.progress import tracked

#: Formats of images, which are recognised by content. Pillow knows others, some of which start programs to read them.
IMAGE_FORMATS: Final = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TGA", "TIFF", "WEBP")


class OwnFiles(ABC):
    """File or folder of the user's own; it cannot be downloaded, and ``root`` plays no part."""

    kind: ClassVar[str]

    def __init__(self, definition: Any, name: str) -> None:
        self.definition, self.name = definition, name
        self.path: Path = definition.path
        self.summary = f"{self.kind} {self.path}"

    @abstractmethod
    def load(self, root: Path | None) -> RawDataset:
        """Read it into memory; a :class:`DataError` where the files are missing or unfit."""

    def info(self, root: Path | None) -> DatasetInfo:
        """Shape and sizes; the set is loaded for them."""
        return self.load(root).info

    def state(self, root: Path | None) -> DatasetState:
        """Whether the set can be used, as far as :meth:`info` can tell."""
        size: int | None = None
        try:
            self.check_exists()
            size = sum(file.stat().st_size for file in self.files())
            self.info(root)
        except DataMissingError:
            return DatasetState("missing", self.path)
        except DataError as error:
            return DatasetState("corrupt", self.path, size or 0, error.what)
        return DatasetState("complete", self.path, size)

    def checksum(self) -> str:
        """SHA-256 of the file, or of the sorted relative paths and sizes of a folder's files; nothing is decoded."""
        self.check_exists()
        if self.path.is_file():
            with self.path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        lines = (f"{file.relative_to(self.path).as_posix()}\0{file.stat().st_size}\n" for file in self.files())
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def fetch(self, root: Path) -> None:
        """Refuse: the user's own files cannot be downloaded."""
        raise self.fault("is your own and cannot be downloaded", "put the files there by hand")

    def check_exists(self) -> None:
        """Raise the error of a path that does not exist or cannot be read."""
        try:
            exists = self.path.exists()
        except (OSError, ValueError) as error:
            raise self._unreadable(self.path, error) from error
        if not exists:
            remedy = (
                "correct its 'path' in the benchmark file (relative paths start from that file), or put the data there"
            )
            raise self.fault("is missing", remedy, DataMissingError)

    def files(self, folder: Path | None = None) -> list[Path]:
        """The file itself, or all files below a folder, sorted by relative path; hidden ones are passed over.

        Raises:
            DataError: a folder or a file in it cannot be read, or is neither a file nor a folder.
        """
        folder = folder or self.path
        if folder.is_file():
            return [folder]
        found: list[Path] = []
        seen: set[tuple[int, int]] = set()
        try:
            for parent, folders, names in os.walk(folder, onerror=_raise, followlinks=True):
                here = Path(parent)
                place = here.stat()
                if (place.st_dev, place.st_ino) in seen:
                    raise self.fault("has a folder twice, by a link", "remove the link", where=here)
                seen.add((place.st_dev, place.st_ino))
                folders[:] = [name for name in folders if not name.startswith(".")]
                visible = [here / name for name in names if not name.startswith(".")]
                for file in visible:
                    if not stat.S_ISREG(file.stat().st_mode):
                        raise self.fault("has something that is neither file nor folder", "remove it", where=file)
                found += visible
        except (OSError, ValueError) as error:
            raise self._unreadable(Path(getattr(error, "filename", None) or folder), error) from error
        return sorted(found, key=lambda file: file.relative_to(folder).as_posix())

    def _unreadable(self, path: Path, error: OSError | ValueError) -> DataError:
        reason = getattr(error, "strerror", None) or error
        return self.fault(f"cannot be read: {reason}", "see that you may read it, or remove it", where=path)

    def fault(self, what: str, remedy: str, kind: type[DataError] = DataError, where: Path | None = None) -> DataError:
        """An error of the set, or of the file ``where`` in it."""
        return kind(f"data set {self.name!r} {what}", where=str(where or self.path), remedy=remedy)


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
                for rows in hold_out(whole.labels, self.definition.test_fraction, self.name)
            )
        size = self.definition.size
        height, width = (size, size) if isinstance(size, int) else size
        blank = DatasetInfo(self.name, self.definition.channels, height, width, len(train.classes), 0, 0)
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


def _raise(error: OSError) -> None:
    raise error


class NpzSource(OwnFiles):
    """An ``.npz`` with ``images`` and ``labels``, or with ``x_train``, ``y_train``, ``x_test`` and ``y_test``.

    Images are 8-bit, or floating point in [0, 1] (which is scaled to 8 bits), laid out as
    :func:`~seu_bench.data.sources.common.channels_first` says; labels are integers from 0.
    """

    kind = "arrays of the file"

    def load(self, root: Path | None) -> RawDataset:
        """Read and check the arrays."""
        self.check_exists()
        try:
            arrays = self._arrays()
        except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
            # Arrays of Python objects end here, too: reading them would run code of the file.
            raise self._corrupt(one_line(error)) from error
        pairs = list(zip(list(arrays)[::2], list(arrays)[1::2], strict=True))
        faults = [fault for x, y in pairs for fault in _faults(x, arrays[x], y, arrays[y])]
        if not faults:
            splits = [_as_split(arrays[x], arrays[y]) for x, y in pairs]
            train, test = splits[0], splits[-1]
            if train.images.shape[1:] != test.images.shape[1:]:
                faults.append(f"x_train has images {train.images.shape[1:]}, x_test {test.images.shape[1:]} [C, H, W]")
            unknown = np.setdiff1d(test.labels, train.labels).tolist()
            faults += [f"y_test has labels that y_train has not: {unknown}"] if unknown else []
        if faults:
            raise self._corrupt("; ".join(faults))
        return described(self.name, splits, self.definition.test_fraction)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Read the two arrays, or the four, that the file has."""
        # Opened here and not by NumPy, which leaves the file open where it is no archive.
        with self.path.open("rb") as opened:
            loaded = np.load(opened, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                raise ValueError("it holds a single array; save it with numpy.savez(path, images=..., labels=...)")
            with loaded as file:
                whole, split = ("images", "labels"), ("x_train", "y_train", "x_test", "y_test")
                begun = [names for names in (whole, split) if {*names} & {*file.files}]
                found = ", ".join(file.files)
                if len(begun) != 1:
                    raise ValueError(
                        f"it has {found or 'nothing'}; give either {', '.join(whole)} or {', '.join(split)}"
                    )
                missing = ", ".join(name for name in begun[0] if name not in file.files)
                if missing:
                    raise ValueError(f"{missing} missing; it has {found}")
                return {name: file[name] for name in begun[0]}

    def _corrupt(self, detail: str) -> DataError:
        remedy = "docs/guides/own_data.md says what the .npz must hold"
        return self.fault(f"is not usable: {detail}", remedy, DataCorruptError)


def _faults(x: str, images: NDArray[Any], y: str, labels: NDArray[Any]) -> Iterator[str]:
    """Yield the faults of one split, whose arrays are called ``x`` and ``y``."""
    whole_labels = np.issubdtype(labels.dtype, np.integer)
    if images.dtype != np.uint8 and not np.issubdtype(images.dtype, np.floating):
        yield f"{x} has dtype {images.dtype}, needed is uint8, or float in [0, 1]"
    elif images.dtype != np.uint8 and images.size and not (images.min() >= 0 and images.max() <= 1):  # NaN fails, too
        yield f"{x} has values {images.min():g}..{images.max():g}, floating point must be in [0, 1]"
    if images.ndim not in (3, 4):
        yield f"{x} has shape {images.shape}, needed is [N, H, W], [N, H, W, C] or [N, C, H, W]"
    if not whole_labels:
        yield f"{y} has dtype {labels.dtype}, needed are integers"
    if labels.ndim != 1:
        yield f"{y} has shape {labels.shape}, needed is [N]"
    elif images.ndim and len(labels) != len(images):
        yield f"{x} has {len(images)} images, {y} {len(labels)} labels"
    if not images.size:
        yield f"{x} is empty"
    elif whole_labels and labels.size and labels.min() < 0:
        yield f"{y} has negative labels: {labels.min()}"
    elif whole_labels and labels.size and labels.max() >= max(1000, len(labels)):
        yield f"{y} has the label {labels.max()}; labels must count the classes from 0"


def _as_split(images: NDArray[Any], labels: NDArray[Any]) -> RawSplit:
    pixels = images if images.dtype == np.uint8 else np.round(images * 255).astype(np.uint8)
    return RawSplit(channels_first(pixels), labels.astype(np.int64))


def definition_source(definition: DatasetDefinition, name: str) -> OwnFiles | TorchvisionClassSource:
    """Source of a benchmark's table ``[datasets.NAME]``, whose paths are absolute."""
    if isinstance(definition, TorchvisionDefinition):
        return TorchvisionClassSource(definition, name)
    return (FolderSource if isinstance(definition, FolderDefinition) else NpzSource)(definition, name)
