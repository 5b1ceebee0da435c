"""Arrays of the user's own: an ``.npz`` of images and labels."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from seu_bench.data.dataset import RawDataset, RawSplit
from seu_bench.data.sources.common import channels_first, described, one_line
from seu_bench.data.sources.own_files import OwnFiles
from seu_bench.errors import DataCorruptError, DataError

#: The optional array of class names.
_CLASS_NAMES: Final = "class_names"


class NpzSource(OwnFiles):
    """An ``.npz`` with ``images`` and ``labels``, or with ``x_train``, ``y_train``, ``x_test`` and ``y_test``.

    Images are 8-bit, or floating point in [0, 1] (which is scaled to 8 bits), laid out as
    :func:`~seu_bench.data.sources.common.channels_first` says; labels are integers from 0, or from the definition's
    ``label_offset``. An array ``class_names`` of texts, of the labels from 0, is optional.
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
        names = arrays.pop(_CLASS_NAMES, None)
        pairs = list(zip(list(arrays)[::2], list(arrays)[1::2], strict=True))
        faults = [fault for x, y in pairs for fault in _faults(x, arrays[x], y, arrays[y])]
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
                return {name: file[name] for name in (*begun[0], _CLASS_NAMES) if name in file.files}

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


def _faults_of_names(names: NDArray[Any], classes: int) -> Iterator[str]:
    """Yield the fault of names of so many classes."""
    if names.dtype.kind != "U" or names.ndim != 1 or len(names) < classes:
        what = f"{len(names)} of them" if names.ndim == 1 and names.dtype.kind == "U" else f"dtype {names.dtype}"
        yield f"{_CLASS_NAMES} has {what}, needed is a list of texts, one for each of the classes 0 to {classes - 1}"


def _as_split(images: NDArray[Any], labels: NDArray[Any], offset: int) -> RawSplit:
    pixels = images if images.dtype == np.uint8 else np.round(images * 255).astype(np.uint8)
    return RawSplit(channels_first(pixels), labels.astype(np.int64) - offset)
