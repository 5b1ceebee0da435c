"""Data of the user's own: what files and folders have in common, and arrays in an ``.npz``."""

from __future__ import annotations

import hashlib
import math
import os
import stat
import zipfile
import zlib
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from seu_bench.data.dataset import (
    DatasetInfo,
    DatasetState,
    RawDataset,
    RawSplit,
    as_8_bit,
    channels_first,
    described,
    one_line,
    require_memory,
)
from seu_bench.errors import DataCorruptError, DataError, DataMissingError
from seu_bench.utils.reading import open_file


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
        """Whether the set can be used, as far as :meth:`check` can tell."""
        size = 0
        try:
            self.check_exists()
            size = sum(file.stat().st_size for file in self.files())
            self.check(root)
        except DataMissingError:
            return DatasetState("missing", self.path)
        except DataError as error:
            return DatasetState("corrupt", self.path, size, error.what)
        return DatasetState("complete", self.path, size)

    def check(self, root: Path | None) -> None:
        """Raise the error of files that cannot be used."""
        self.info(root)

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
        """Raise the error of a path that does not exist, cannot be read, or is neither a file nor a folder."""
        try:
            kind = stat.S_IFMT(self.path.stat().st_mode)
        except FileNotFoundError:
            remedy = "correct its 'path' in the benchmark file (relative to that file), or put the data there"
            raise self.fault("is missing", remedy, DataMissingError) from None
        except (OSError, ValueError) as error:
            raise self.unreadable(self.path, error) from error
        if kind not in (stat.S_IFREG, stat.S_IFDIR):
            raise self.fault("is neither a file nor a folder", "give another path")

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
                for file in (here / name for name in names if not name.startswith(".")):
                    if not stat.S_ISREG(file.stat().st_mode):
                        raise self.fault("has something that is neither file nor folder", "remove it", where=file)
                    found.append(file)
        except (OSError, ValueError) as error:
            raise self.unreadable(Path(getattr(error, "filename", None) or folder), error) from error
        return sorted(found, key=lambda file: file.relative_to(folder).as_posix())

    def unreadable(self, path: Path, error: OSError | ValueError) -> DataError:
        """The error of a path that cannot be read."""
        reason = getattr(error, "strerror", None) or error
        return self.fault(f"cannot be read: {reason}", "see that you may read it, or remove it", where=path)

    def fault(self, what: str, remedy: str, kind: type[DataError] = DataError, where: Path | None = None) -> DataError:
        """An error of the set, or of the file ``where`` in it."""
        return kind(f"data set {self.name!r} {what}", where=str(where or self.path), remedy=remedy)


def _raise(error: OSError) -> None:
    raise error


# ------------------------------------------------------------------------------------------------------------- arrays

#: The optional array of class names, and the arrays that a file must have: the first two, or the other four.
_CLASS_NAMES: Final = "class_names"
_WHOLE: Final = ("images", "labels")
_SPLIT: Final = ("x_train", "y_train", "x_test", "y_test")


class NpzSource(OwnFiles):
    """An ``.npz`` with ``images`` and ``labels``, or with ``x_train``, ``y_train``, ``x_test`` and ``y_test``.

    Images are what :func:`~seu_bench.data.dataset.as_8_bit` takes. Labels are integers from 0, or from the definition's
    ``label_offset``, where an array ``class_names`` of texts, of the labels from 0, is optional; or they are texts
    themselves, the names of the classes, which are numbered in their order.
    """

    kind = "arrays of the file"

    def load(self, root: Path | None) -> RawDataset:
        """Read and check the arrays."""
        self.check_exists()
        try:
            arrays = self._arrays()
            names = arrays.pop(_CLASS_NAMES, None)
            keys = list(arrays)
            if any(are_texts := [arrays[y].dtype.kind == "U" for y in keys[1::2]]):
                if not all(are_texts) or names is not None or self.definition.label_offset is not None:
                    raise ValueError("labels that are texts name the classes: no numbers, class_names or label_offset")
                names = np.unique(arrays[keys[1]])
            splits = [self._split(arrays, x, y, names) for x, y in zip(keys[::2], keys[1::2], strict=True)]
            train, test = splits[0], splits[-1]
            self._check_first(min(int(split.labels.min()) for split in splits))
            splits = [RawSplit(it.images, it.labels - (self.definition.label_offset or 0)) for it in splits]
            if train.images.shape[1:] != test.images.shape[1:]:
                shapes = f"{train.images.shape[1:]}, x_test {test.images.shape[1:]}"
                raise ValueError(f"x_train has images {shapes} [C, H, W]")
            if unknown := np.setdiff1d(test.labels, train.labels).tolist():
                raise ValueError(f"y_test has labels that y_train has not: {unknown}")
            classes = 1 + int(splits[0].labels.max())
            if names is not None and (names.dtype.kind != "U" or names.ndim != 1 or len(names) < classes):
                raise ValueError(f"{_CLASS_NAMES} must be texts, one for each of the classes 0 to {classes - 1}")
        except (OSError, ValueError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
            # Arrays of Python objects end here, too: reading them would run code of the file.
            remedy = "docs/guides/own_data.md says what the .npz must hold"
            raise self.fault(f"is not usable: {one_line(error)}", remedy, DataCorruptError) from error
        called = None if names is None else [str(name) for name in names]
        return described(self.name, splits, self.definition.test_fraction, str(self.path), called)

    def _split(self, arrays: dict[str, NDArray[Any]], x: str, y: str, names: Any) -> RawSplit:
        """Images and labels of two arrays, as far as they can be checked for themselves."""
        labels = arrays[y][:, 0] if arrays[y].ndim == 2 and arrays[y].shape[1] == 1 else arrays[y]
        try:
            images = as_8_bit(arrays[x])
        except ValueError as error:
            raise ValueError(f"{x} {error}") from error
        shape = images.shape
        if images.ndim not in (3, 4) or not all(shape):
            raise ValueError(f"{x} has shape {shape}; needed are images [N, H, W], [N, H, W, C] or [N, C, H, W]")
        if images.ndim == 4:
            first, last = shape[1] in (1, 3), shape[3] in (1, 3)
            if first == last and (first or shape[1] >= shape[3]):
                raise ValueError(f"{x} has shape {shape}: which axis has the 1 or 3 channels cannot be told")
        if labels.shape != shape[:1]:
            raise ValueError(f"{y} has shape {labels.shape}, needed is {shape[:1]}, a label for each image of {x}")
        if labels.dtype.kind == "U":
            if unknown := np.setdiff1d(labels, names).tolist():
                raise ValueError(f"{y} has labels that y_train has not: {unknown}")
            if (labels == "").any():
                raise ValueError(f"{y} has an empty text for a label")
            labels = np.searchsorted(names, labels)
        elif not np.issubdtype(labels.dtype, np.integer):
            raise ValueError(f"{y} has dtype {labels.dtype}, needed are integers or texts")
        if labels.min() < 0 or labels.max() >= max(1000, len(labels)):
            raise ValueError(f"{y} has labels {labels.min()} to {labels.max()}; they must count the classes from 0")
        return RawSplit(channels_first(images), labels.astype(np.int64))

    def _check_first(self, least: int) -> None:
        offset, place = self.definition.label_offset, f"[datasets.{self.name}]"
        if offset is None and least > 0:
            raise ValueError(
                f"labels begin at {least}, and must begin at 0: subtract {least}, or set label_offset = {least} in "
                f"{place} (label_offset = 0 where there are no images of class 0)"
            )
        if offset is not None and least < offset:
            raise ValueError(f"labels begin at {least}, below label_offset = {offset} of {place}")

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Read the two arrays, or the four, that the file has."""
        with open_file(self.path.resolve()) as opened:
            if opened.read(len(np.lib.format.MAGIC_PREFIX)) == np.lib.format.MAGIC_PREFIX:
                raise ValueError("it holds a single array; save it with numpy.savez(path, images=..., labels=...)")
            with zipfile.ZipFile(opened) as archive:
                held = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
                begun = [names for names in (_WHOLE, _SPLIT) if {*names} & {*held}]
                found = ", ".join(held) or "nothing"
                if len(begun) != 1:
                    raise ValueError(f"it has {found}; give either {', '.join(_WHOLE)} or {', '.join(_SPLIT)}")
                if missing := ", ".join(name for name in begun[0] if name not in held):
                    raise ValueError(f"{missing} missing; it has {found}")
                return {name: self._array(archive, held[name]) for name in (*begun[0], _CLASS_NAMES) if name in held}

    def _array(self, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
        """Read an array of which the archive holds as much as its header says, if there is memory for it."""
        with archive.open(member) as file:
            version = np.lib.format.read_magic(file)
            if version != (1, 0):  # later ones may have a header of any length, which is read as a whole
                raise ValueError(f"{member.filename} has format {version}, needed is (1, 0)")
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            size = math.prod(shape) * dtype.itemsize
            if not dtype.hasobject and file.tell() + size != member.file_size:
                held = member.file_size - file.tell()
                raise ValueError(f"{member.filename} says that it has {size:,} bytes, and holds {held:,}")
        require_memory(self.name, shape[0] if shape else 1, shape[1:], dtype.itemsize)
        with archive.open(member) as file:
            array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        return np.char.decode(array, "utf-8") if dtype.kind == "S" else array
