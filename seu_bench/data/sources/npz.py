"""Arrays of the user's own: an ``.npz`` of images and labels."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from seu_bench.data.dataset import RawDataset, RawSplit, as_8_bit
from seu_bench.data.sources.common import channels_first, described, one_line, require_memory
from seu_bench.data.sources.own_files import OwnFiles
from seu_bench.errors import DataCorruptError, DataError
from seu_bench.utils.reading import open_file

#: The optional array of class names.
_CLASS_NAMES: Final = "class_names"


class NpzSource(OwnFiles):
    """An ``.npz`` with ``images`` and ``labels``, or with ``x_train``, ``y_train``, ``x_test`` and ``y_test``.

    Images are what :func:`~seu_bench.data.dataset.as_8_bit` takes, laid out as
    :func:`~seu_bench.data.sources.common.channels_first` says. Labels are integers from 0, or from the definition's
    ``label_offset``, where an array ``class_names`` of texts, of the labels from 0, is optional; or they are texts
    themselves, the names of the classes, which are numbered in their order.
    """

    kind = "arrays of the file"

    def load(self, root: Path | None) -> RawDataset:
        """Read and check the arrays."""
        self.check_exists()
        try:
            arrays = self._arrays()
        except (OSError, ValueError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
            # Arrays of Python objects end here, too: reading them would run code of the file.
            raise self._corrupt(one_line(error)) from error
        names = arrays.pop(_CLASS_NAMES, None)
        pairs = list(zip(list(arrays)[::2], list(arrays)[1::2], strict=True))
        faults: list[str] = []
        for x, y in pairs:
            try:
                arrays[x] = as_8_bit(arrays[x])
            except ValueError as error:
                faults.append(f"{x} {error}")
            if arrays[y].ndim == 2 and arrays[y].shape[1] == 1:
                arrays[y] = arrays[y][:, 0]
        if any(arrays[y].dtype.kind == "U" for _, y in pairs):
            faults += self._faults_of_texts([arrays[y] for _, y in pairs], names)
            if not faults:
                names = np.unique(arrays[pairs[0][1]])
                arrays |= {y: np.searchsorted(names, arrays[y]) for _, y in pairs}
        else:
            faults += [fault for _, y in pairs for fault in _faults_of_numbers(y, arrays[y])]
        faults += [fault for x, y in pairs for fault in _faults_of_shapes(x, arrays[x], y, arrays[y])]
        if not faults:
            faults += self._faults_of_first([y for _, y in pairs], min(int(arrays[y].min()) for _, y in pairs))
        if not faults:
            splits = [_as_split(arrays[x], arrays[y], self.definition.label_offset or 0) for x, y in pairs]
            train, test = splits[0], splits[-1]
            if train.images.shape[1:] != test.images.shape[1:]:
                faults.append(f"x_train has images {train.images.shape[1:]}, x_test {test.images.shape[1:]} [C, H, W]")
            unknown = np.setdiff1d(test.labels, train.labels).tolist()
            faults += [f"y_test has labels that y_train has not: {unknown}"] if unknown else []
            faults += _faults_of_names(names, 1 + int(train.labels.max())) if names is not None else []
        if faults:
            raise self._corrupt("; ".join(faults))
        called = None if names is None else [str(name) for name in names]
        return described(self.name, splits, self.definition.test_fraction, str(self.path), called)

    def _faults_of_texts(self, labels: Sequence[NDArray[Any]], names: NDArray[Any] | None) -> Iterator[str]:
        """Yield the faults of labels that are texts, of the training and of the test images."""
        if len({array.dtype.kind for array in labels}) > 1:
            yield f"labels have dtypes {' and '.join(str(array.dtype) for array in labels)}, needed is one kind"
            return
        unknown = np.setdiff1d(labels[-1], labels[0]).tolist()
        if unknown:
            yield f"y_test has labels that y_train has not: {unknown}"
        if any((array == "").any() for array in labels):
            yield "a label is an empty text"
        if names is not None or self.definition.label_offset is not None:
            yield f"labels are texts, which name the classes: leave out {_CLASS_NAMES} and label_offset"

    def _faults_of_first(self, arrays: Sequence[str], least: int) -> Iterator[str]:
        """Yield the fault of labels that do not begin where they must."""
        offset, place = self.definition.label_offset, f"[datasets.{self.name}]"
        if offset is None and least > 0:
            yield (
                f"{' and '.join(arrays)} begin at {least}, and must begin at 0: subtract {least}, or set "
                f"label_offset = {least} in {place} (label_offset = 0 where there are no images of class 0)"
            )
        elif offset is not None and least < offset:
            yield f"{' and '.join(arrays)} begin at {least}, below label_offset = {offset} of {place}"

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Read the two arrays, or the four, that the file has."""
        with open_file(self.path.resolve()) as opened:
            if opened.read(len(np.lib.format.MAGIC_PREFIX)) == np.lib.format.MAGIC_PREFIX:
                raise ValueError("it holds a single array; save it with numpy.savez(path, images=..., labels=...)")
            with zipfile.ZipFile(opened) as archive:
                held = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
                whole, split = ("images", "labels"), ("x_train", "y_train", "x_test", "y_test")
                begun = [names for names in (whole, split) if {*names} & {*held}]
                found = ", ".join(held)
                if len(begun) != 1:
                    raise ValueError(
                        f"it has {found or 'nothing'}; give either {', '.join(whole)} or {', '.join(split)}"
                    )
                missing = ", ".join(name for name in begun[0] if name not in held)
                if missing:
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

    def _corrupt(self, detail: str) -> DataError:
        remedy = "docs/guides/own_data.md says what the .npz must hold"
        return self.fault(f"is not usable: {detail}", remedy, DataCorruptError)


def _faults_of_shapes(x: str, images: NDArray[Any], y: str, labels: NDArray[Any]) -> Iterator[str]:
    """Yield the faults of one split's shapes, whose arrays are called ``x`` and ``y``."""
    if images.ndim not in (3, 4) or (images.ndim == 4 and not _has_clear_channels(images.shape)):
        yield (
            f"{x} has shape {images.shape}, needed is [N, H, W], [N, H, W, C] with 1 or 3 channels, or [N, C, H, W] "
            "with fewer channels than columns"
        )
    if labels.ndim != 1:
        yield f"{y} has shape {labels.shape}, needed is [N]"
    elif images.ndim and len(labels) != len(images):
        yield f"{x} has {len(images)} images, {y} {len(labels)} labels"
    if not images.size:
        yield f"{x} is empty"


def _has_clear_channels(shape: Sequence[int]) -> bool:
    """Whether it can be told which axis of ``[N, H, W, C]`` or ``[N, C, H, W]`` has the channels."""
    first, last = (shape[axis] in (1, 3) for axis in (1, 3))
    return first != last or (not first and shape[1] < shape[3])


def _faults_of_numbers(y: str, labels: NDArray[Any]) -> Iterator[str]:
    """Yield the faults of labels that are numbers."""
    if not np.issubdtype(labels.dtype, np.integer):
        yield f"{y} has dtype {labels.dtype}, needed are integers or texts"
    elif labels.size and labels.min() < 0:
        yield f"{y} has negative labels: {labels.min()}"
    elif labels.size and labels.max() >= max(1000, len(labels)):
        yield f"{y} has the label {labels.max()}; labels must count the classes from 0"


def _faults_of_names(names: NDArray[Any], classes: int) -> Iterator[str]:
    """Yield the fault of names of so many classes."""
    if names.dtype.kind != "U" or names.ndim != 1 or len(names) < classes:
        what = f"{len(names)} of them" if names.ndim == 1 and names.dtype.kind == "U" else f"dtype {names.dtype}"
        yield f"{_CLASS_NAMES} has {what}, needed is a list of texts, one for each of the classes 0 to {classes - 1}"


def _as_split(images: NDArray[Any], labels: NDArray[Any], offset: int) -> RawSplit:
    return RawSplit(channels_first(images), labels.astype(np.int64) - offset)
