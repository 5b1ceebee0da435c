"""An ``.npz`` file of arrays as a data set."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seu_bench.data.dataset import DatasetInfo, RawDataset, RawSplit
from seu_bench.data.sources.common import OwnFiles, channels_first, described, one_line, split_by_fraction
from seu_bench.errors import DataCorruptError

_WHOLE = ("images", "labels")
_SPLIT = ("x_train", "y_train", "x_test", "y_test")


class NpzSource(OwnFiles):
    """An ``.npz`` with ``images`` and ``labels``, or with ``x_train``, ``y_train``, ``x_test`` and ``y_test``.

    Images are 8-bit, or floating point in [0, 1] (which is scaled to 8 bits), laid out as
    :func:`~seu_bench.data.sources.common.channels_first` says; labels are integers from 0.
    """

    kind = "arrays of the file"

    def info(self, root: Path | None) -> DatasetInfo:
        """Shape and sizes; the file is read for them, see :meth:`load`."""
        return self.load(root).info

    def load(self, root: Path | None) -> RawDataset:
        """Read and check the arrays."""
        arrays = self._arrays()
        faults: list[str] = []
        names = list(arrays)
        splits = [_checked(arrays, x, y, faults) for x, y in zip(names[::2], names[1::2], strict=True)]
        parts = [split for split in splits if split is not None]
        if len(names) == len(_SPLIT) and len(parts) == 2:
            train, test = parts
            if train.images.shape[1:] != test.images.shape[1:]:
                faults.append(f"x_train has images {train.images.shape[1:]}, x_test {test.images.shape[1:]} [C, H, W]")
            unknown = np.setdiff1d(test.labels, train.labels).tolist()
            faults += [f"y_test has labels that y_train has not: {unknown}"] if unknown else []
        if faults:
            raise self._corrupt("; ".join(faults))
        if len(parts) == 1:
            parts = [*split_by_fraction(parts[0], self.definition.test_fraction, self.name)]
        return described(self.name, *parts)

    def checksum(self) -> str:
        """SHA-256 of the file."""
        if not self.path.is_file():
            raise self.missing()
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Read the four arrays, or the two, that the file has."""
        if not self.path.is_file():
            raise self.missing()
        try:
            # Opened here and not by NumPy, which leaves the file open where it is no archive.
            with self.path.open("rb") as opened:
                loaded = np.load(opened, allow_pickle=False)
                if isinstance(loaded, np.ndarray):
                    raise ValueError("it holds a single array; save it with numpy.savez(path, images=..., labels=...)")
                with loaded as file:
                    return {name: file[name] for name in _names(file.files)}
        except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
            # Arrays of Python objects end here, too: reading them would run code of the file.
            raise self._corrupt(one_line(error)) from error

    def _corrupt(self, detail: str) -> DataCorruptError:
        return DataCorruptError(
            f"data set {self.name!r} is not usable: {detail}",
            where=str(self.path),
            remedy="docs/guides/own_data.md says what the .npz must hold",
        )


def _names(found: Sequence[str]) -> tuple[str, ...]:
    """Names of the file's arrays to read."""
    begun = [names for names in (_WHOLE, _SPLIT) if set(names) & set(found)]
    if len(begun) != 1:
        given = ", ".join(found) or "nothing"
        raise ValueError(f"it has {given}; give either {', '.join(_WHOLE)} or {', '.join(_SPLIT)}")
    missing = [name for name in begun[0] if name not in found]
    if missing:
        raise ValueError(f"{', '.join(missing)} missing; it has {', '.join(found)}")
    return begun[0]


def _checked(arrays: Mapping[str, NDArray[Any]], x: str, y: str, faults: list[str]) -> RawSplit | None:
    """Check one split and append its faults to ``faults``; ``None`` where it has any."""
    images, labels = arrays[x], arrays[y]
    before = len(faults)
    if images.dtype != np.uint8 and not np.issubdtype(images.dtype, np.floating):
        faults.append(f"{x} has dtype {images.dtype}, needed is uint8, or float in [0, 1]")
    elif images.dtype != np.uint8 and images.size and not (images.min() >= 0 and images.max() <= 1):  # NaN fails, too
        faults.append(f"{x} has values {images.min():g}..{images.max():g}, floating point must be in [0, 1]")
    if images.ndim not in (3, 4):
        faults.append(f"{x} has shape {images.shape}, needed is [N, H, W], [N, H, W, C] or [N, C, H, W]")
    if not np.issubdtype(labels.dtype, np.integer):
        faults.append(f"{y} has dtype {labels.dtype}, needed are integers")
    if labels.ndim != 1:
        faults.append(f"{y} has shape {labels.shape}, needed is [N]")
    elif images.ndim and len(labels) != len(images):
        faults.append(f"{x} has {len(images)} images, {y} {len(labels)} labels")
    if not images.size:
        faults.append(f"{x} is empty")
    elif np.issubdtype(labels.dtype, np.integer) and labels.size and labels.min() < 0:
        faults.append(f"{y} has negative labels: {labels.min()}")
    elif np.issubdtype(labels.dtype, np.integer) and labels.size and labels.max() >= max(1000, len(labels)):
        faults.append(f"{y} has the label {labels.max()}; labels must count the classes from 0")
    if len(faults) > before:
        return None
    if images.dtype != np.uint8:
        images = np.round(images * 255).astype(np.uint8)
    return RawSplit(channels_first(images), labels.astype(np.int64))
