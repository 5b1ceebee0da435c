"""The official data sets that torchvision reads, in torchvision's own layout below the data root.

Files are checked before they are used: torchvision unpickles CIFAR and believes the sizes that an idx file declares.
"""

from __future__ import annotations

import http.client
import socket
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import numpy as np
from numpy.typing import NDArray

from seu_bench.config.commands import command
from seu_bench.data.dataset import DatasetInfo, DatasetState, RawDataset, RawSplit
from seu_bench.data.sources.common import DATA_ROOT_VARIABLE, counted, default_data_root, download_bars, one_line
from seu_bench.data.sources.torchvision_class import array_split
from seu_bench.errors import DataCorruptError, DataError, DataMissingError
from seu_bench.utils.progress import tracked

#: Seconds without an answer after which a download is given up.
DOWNLOAD_TIMEOUT = 60.0

_DOWNLOAD_ERRORS = (
    OSError,  # urllib.error.URLError, broken gzip and a full disk among them
    RuntimeError,  # torchvision: all mirrors failed, or what came has another md5
    EOFError,
    http.client.HTTPException,
    tarfile.TarError,
    zipfile.BadZipFile,
)


@dataclass(frozen=True)
class TorchvisionSource:
    """One official data set.

    Attributes:
        summary: one line that says what it is.
        known: name, shape and sizes of the official files.
        class_name: torchvision's class: one of the MNIST family, ``SVHN``, ``CIFAR10`` or ``CIFAR100``.
        arguments: further constructor arguments, e.g. ``{"split": "letters"}``.
        other_sizes: training and test images of other official editions.
        md5: of the unpacked files of the MNIST family, by name, where known; torchvision knows the packed ones'.
    """

    summary: str
    known: DatasetInfo
    class_name: str
    arguments: Mapping[str, str] = field(default_factory=dict)
    other_sizes: Sequence[tuple[int, int]] = ()
    md5: Mapping[str, str] = field(default_factory=dict)

    def info(self, root: Path | None) -> DatasetInfo:
        """Shape and sizes; label files are only read where more than one edition exists and they are there."""
        if self.other_sizes:
            paths = [default_data_root(root) / labels for _, labels in self._idx_pairs()]
            if all(path.is_file() for path in paths):
                train, test = (np.fromfile(path, dtype=np.uint8, offset=8).astype(np.int64) for path in paths)
                if (len(train), len(test)) in self.other_sizes:
                    return counted(self.known, train, test)
        return self.known

    def state(self, root: Path | None) -> DatasetState:
        """Whether the set can be used. Every file is read and checked: about a second for the largest."""
        folder = default_data_root(root)
        files = self._files()
        missing = [name for name in files if not (folder / name).is_file()]
        if len(missing) == len(files):
            return DatasetState("missing", folder)
        size = sum((folder / name).stat().st_size for name in files if name not in missing)
        if missing:
            return DatasetState("incomplete", folder, size, f"missing: {', '.join(missing)}")
        try:
            self._check(folder, files)
        except (OSError, ValueError) as error:
            return DatasetState("corrupt", folder, size, one_line(error))
        return DatasetState("complete", folder, size)

    def load(self, root: Path | None) -> RawDataset:
        """Read both splits into memory, after checking every file."""
        state, folder = self.state(root), default_data_root(root)
        if state.status in ("missing", "incomplete"):
            what = f"is incomplete, {state.detail}" if state.detail else "is missing"
            or_else = f"(or point --data-root or {DATA_ROOT_VARIABLE} at the folder that holds it)"
            raise self._error(what, folder, f"{self._command(folder)} {or_else}", DataMissingError)
        if state.status == "corrupt":
            raise self._corrupt(folder, state.detail)
        try:
            train, test = self._idx_splits(folder) if self._is_idx else [self._split(folder, t) for t in (True, False)]
        except (OSError, RuntimeError, ValueError, KeyError, EOFError) as error:
            raise self._corrupt(folder, one_line(error)) from error
        return RawDataset(counted(self.known, train.labels, test.labels), train, test)

    def fetch(self, root: Path) -> None:
        """Download the set below ``root`` where it is not complete yet, and check it."""
        folder = default_data_root(root)
        if self.state(folder).status == "complete":
            return
        timeout = socket.getdefaulttimeout()
        socket.setdefaulttimeout(DOWNLOAD_TIMEOUT)  # torchvision sets none and would wait for ever
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with download_bars(self.known.name):
                for training in (True, False):
                    self._construct(folder, training, download=True)
        except _DOWNLOAD_ERRORS as error:
            what = f"could not be downloaded from {', '.join(self._hosts())}: {one_line(error)}"
            by_hand = f"copy the files there by hand ({', '.join(self._files())})"
            remedy = f"check the network and try again; or {by_hand}; or set --data-root to a folder that has them"
            raise self._error(what, folder, remedy) from error
        finally:
            socket.setdefaulttimeout(timeout)
        state = self.state(folder)
        if state.status != "complete":
            raise self._corrupt(folder, state.detail)

    def _command(self, folder: Path) -> str:
        return command("data", "fetch", self.known.name, data_root=folder)

    def _corrupt(self, folder: Path, detail: str) -> DataError:
        remedy = f"delete the file that is named above, then: {self._command(folder)}"
        return self._error(f"is corrupt: {detail}", folder, remedy, DataCorruptError)

    def _error(self, what: str, folder: Path, remedy: str, kind: type[DataError] = DataError) -> DataError:
        return kind(f"data set {self.known.name!r} {what}", where=str(folder), remedy=remedy)

    @property
    def _is_idx(self) -> bool:
        return self.class_name not in ("SVHN", "CIFAR10", "CIFAR100")

    @property
    def _class(self) -> Any:
        import torchvision.datasets

        return getattr(torchvision.datasets, self.class_name)

    def _hosts(self) -> list[str]:
        cls = self._class
        if self.class_name == "SVHN":
            urls = [cls.split_list["train"][0]]
        else:
            urls = [cls.url] if hasattr(cls, "url") else cls.mirrors
        return [urlparse(url).hostname or url for url in urls]

    def _idx_pairs(self) -> list[tuple[str, str]]:
        """Image and label file of the training and of the test split, below the root."""
        split = self.arguments.get("split")
        prefixes = (f"emnist-{split}-train", f"emnist-{split}-test") if split else ("train", "t10k")
        raw = f"{self.class_name}/raw"
        return [(f"{raw}/{prefix}-images-idx3-ubyte", f"{raw}/{prefix}-labels-idx1-ubyte") for prefix in prefixes]

    def _files(self) -> dict[str, str | None]:
        """Files below the root and their md5, where it is known."""
        if self._is_idx:
            return {name: self.md5.get(Path(name).name) for pair in self._idx_pairs() for name in pair}
        cls = self._class
        if self.class_name == "SVHN":
            return {cls.split_list[split][1]: cls.split_list[split][2] for split in ("train", "test")}
        listed = [*cls.train_list, *cls.test_list, (cls.meta["filename"], cls.meta["md5"])]
        return {f"{cls.base_folder}/{name}": md5 for name, md5 in listed}

    def _check(self, folder: Path, files: Mapping[str, str | None]) -> None:
        """Raise ValueError where a file is not the official one; by its content where its md5 is not known."""
        from torchvision.datasets.utils import check_integrity

        for name, md5 in tracked(files.items(), f"checking {self.known.name}"):
            if md5 and not check_integrity(str(folder / name), md5):
                raise ValueError(f"{name} is not the official file (its md5 is not {md5})")
        if not all(files.values()):
            self._idx_splits(folder)

    def _idx_splits(self, folder: Path) -> list[RawSplit]:
        """Both splits of the MNIST family; its class would prefer an old ``processed`` folder to the checked files."""
        splits = [self._idx_split(folder / images, folder / labels) for images, labels in self._idx_pairs()]
        train, test = map(len, splits)
        editions = [(self.known.num_train, self.known.num_test), *self.other_sizes]
        if (train, test) not in editions:
            due = " or ".join(f"{edition[0]} and {edition[1]}" for edition in editions)
            raise ValueError(f"{folder / self.class_name} has {train} training and {test} test images, needed: {due}")
        return splits

    def _idx_split(self, images: Path, labels: Path) -> RawSplit:
        pixels, targets = _read_idx(images, 3), _read_idx(labels, 1)
        size, known = "{}x{}".format(*pixels.shape[1:]), f"{self.known.height}x{self.known.width}"
        if size != known:
            raise ValueError(f"{images.name}: its images are {size}, not {known}")
        if len(pixels) != len(targets):
            raise ValueError(f"{images.name} has {len(pixels)} images, {labels.name} {len(targets)} labels")
        # A label that never occurs (EMNIST letters have no 0) is corrupt, too.
        allowed = [label for label, count in enumerate(self.known.train_per_class or ()) if count]
        if not np.isin(targets, allowed).all():
            found = f"{targets.min()}..{targets.max()}"
            raise ValueError(f"{labels.name}: its labels are {found}, needed: {allowed[0]}..{allowed[-1]}")
        return RawSplit(pixels[:, None], targets.astype(np.int64))

    def _construct(self, folder: Path, training: bool, *, download: bool) -> Any:
        which = {"split": "train" if training else "test"} if self.class_name == "SVHN" else {"train": training}
        cls = self._class
        if self._is_idx:
            # A folder `processed` of an old torchvision would be unpickled. The name stays: the folder is named by it.
            cls = type(self.class_name, (cls,), {"_check_legacy_exist": lambda _: False})
        return cls(str(folder), download=download, **which, **self.arguments)

    def _split(self, folder: Path, training: bool) -> RawSplit:
        """Read a split of SVHN or CIFAR, whose files have the right md5."""
        split = array_split(self._construct(folder, training, download=False))
        if split is None:
            raise ValueError("this version of torchvision does not hold it as 8-bit images and labels")
        return split


def _read_idx(path: Path, axes: int) -> NDArray[np.uint8]:
    """Array of an idx file of the MNIST family, as torchvision reads it; ValueError where the format differs."""
    from torchvision.datasets.mnist import read_sn3_pascalvincent_tensor

    try:
        values: NDArray[np.uint8] = read_sn3_pascalvincent_tensor(str(path), strict=False).numpy()
    except (AssertionError, RuntimeError, ValueError) as error:
        detail = f": {one_line(error)}" if str(error) else ""
        raise ValueError(f"{path.name}: it is no complete idx file{detail} ({path.stat().st_size} bytes)") from error
    if values.dtype != np.uint8 or values.ndim != axes:
        raise ValueError(f"{path.name}: it holds {values.dtype} of shape {values.shape}, needed: uint8, {axes} axes")
    return values
