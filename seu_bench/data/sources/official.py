"""The official data sets that torchvision reads, in torchvision's own layout below the data root.

Files are checked before they are used: torchvision unpickles CIFAR and believes whatever an idx header says.
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

from seu_bench.data.dataset import DatasetInfo, DatasetState, Images, Labels, RawDataset, RawSplit, Status
from seu_bench.data.sources import idx
from seu_bench.data.sources.common import counted, default_data_root, download_bars, missing_error, one_line
from seu_bench.errors import DataCorruptError, DataError
from seu_bench.utils.progress import tracked

#: md5 of unpacked idx files, by path below the root; torchvision knows only those of the packed ones.
RAW_MD5 = {
    "MNIST/raw/train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "MNIST/raw/train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "MNIST/raw/t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "MNIST/raw/t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    "FashionMNIST/raw/train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
    "FashionMNIST/raw/train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
    "FashionMNIST/raw/t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
    "FashionMNIST/raw/t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
}

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
    """

    summary: str
    known: DatasetInfo
    class_name: str
    arguments: Mapping[str, str] = field(default_factory=dict)
    other_sizes: Sequence[tuple[int, int]] = ()

    def info(self, root: Path | None) -> DatasetInfo:
        """Shape and sizes; the files are only looked at where more than one edition exists and they are there."""
        if self.other_sizes:
            folder = default_data_root(root)
            try:
                self._check_idx(folder)
            except (OSError, ValueError):
                return self.known
            train, test = (idx.labels_of(folder / pair[1]) for pair in self._idx_pairs())
            return counted(self.known, train, test)
        return self.known

    def state(self, root: Path | None) -> DatasetState:
        """Whether the set can be used. Every file is read and checked: about a second for the largest."""
        folder = default_data_root(root)
        files = self._files()
        paths = [folder / name for name in files]
        there = [path for path in paths if path.is_file()]
        size = sum(path.stat().st_size for path in there)
        missing = [name for name in files if not (folder / name).is_file()]
        status: Status = "complete"
        detail = ""
        if missing:
            status = "incomplete" if there else "missing"
            detail = f"missing: {', '.join(missing)}" if there else ""
        else:
            try:
                self._check(folder)
            except (OSError, ValueError) as error:
                status, detail = "corrupt", one_line(error)
        return DatasetState(status, folder, size or None, detail)

    def load(self, root: Path | None) -> RawDataset:
        """Read both splits into memory, after checking every file.

        Raises:
            DataMissingError: files are missing; the message has the folder and the command that fetches them.
            DataCorruptError: a file is not the official one.
        """
        state = self.state(root)
        folder = default_data_root(root)
        if state.status in ("missing", "incomplete"):
            raise missing_error(self.known.name, folder, state.detail)
        if state.status == "corrupt":
            raise self._corrupt(folder, state.detail)
        try:
            train, test = (self._split(folder, training) for training in (True, False))
        except (OSError, RuntimeError, ValueError, KeyError, EOFError) as error:
            raise self._corrupt(folder, one_line(error)) from error
        info = counted(self.known, train.labels, test.labels)
        return RawDataset(info, train, test)

    def fetch(self, root: Path) -> None:
        """Download the set below ``root`` where it is not complete yet, and check it.

        Raises:
            DataError: it cannot be downloaded.
            DataCorruptError: what is there afterwards is not the official set.
        """
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
            raise DataError(
                f"data set {self.known.name!r} could not be downloaded from {', '.join(self._hosts())}:"
                f" {one_line(error)}",
                where=str(folder),
                remedy=f"check the network and try again; or copy the files there by hand ({', '.join(self._files())});"
                " or set --data-root to a folder that has them",
            ) from error
        finally:
            socket.setdefaulttimeout(timeout)
        state = self.state(folder)
        if state.status != "complete":
            raise self._corrupt(folder, state.detail)

    def _corrupt(self, folder: Path, detail: str) -> DataCorruptError:
        return DataCorruptError(
            f"data set {self.known.name!r} is corrupt: {detail}",
            where=str(folder),
            remedy="delete the file that is named above, then: "
            f"seu-bench data fetch {self.known.name} --data-root {folder}",
        )

    def _class(self) -> Any:
        import torchvision.datasets

        return getattr(torchvision.datasets, self.class_name)

    def _construct(self, folder: Path, training: bool, *, download: bool) -> Any:
        which = {"split": "train" if training else "test"} if self.class_name == "SVHN" else {"train": training}
        cls = self._class()
        if self._is_idx():
            # A folder `processed` of an old torchvision would be read instead of the files that were checked. The
            # name stays, because torchvision derives the folder from it.
            cls = type(self.class_name, (cls,), {"_check_legacy_exist": lambda _: False})
        return cls(str(folder), download=download, **which, **self.arguments)

    def _split(self, folder: Path, training: bool) -> RawSplit:
        dataset = self._construct(folder, training, download=False)
        data = np.asarray(dataset.data)
        labels: Labels = np.asarray(dataset.labels if self.class_name == "SVHN" else dataset.targets, dtype=np.int64)
        if self._is_idx():
            data = data[:, None]
        elif self.class_name != "SVHN":  # torchvision keeps CIFAR as [N, H, W, C]
            data = data.transpose(0, 3, 1, 2)
        images: Images = np.ascontiguousarray(data, dtype=np.uint8)
        shape = (self.known.channels, self.known.height, self.known.width)
        if images.shape[1:] != shape or labels.shape != images.shape[:1]:
            raise ValueError(f"its images are {images.shape}, its labels {labels.shape}")
        if labels.min() < 0 or labels.max() >= self.known.num_classes:
            raise ValueError(f"its labels are {labels.min()}..{labels.max()}")
        return RawSplit(images, labels)

    def _is_idx(self) -> bool:
        return self.class_name != "SVHN" and not self.class_name.startswith("CIFAR")

    def _idx_pairs(self) -> list[tuple[str, str]]:
        """Image and label file of the training and of the test split, below the root."""
        split = self.arguments.get("split")
        prefixes = (f"emnist-{split}-train", f"emnist-{split}-test") if split else ("train", "t10k")
        raw = f"{self.class_name}/raw"
        return [(f"{raw}/{prefix}-images-idx3-ubyte", f"{raw}/{prefix}-labels-idx1-ubyte") for prefix in prefixes]

    def _md5(self) -> dict[str, str]:
        """md5 by path below the root, for those sets whose files have known ones."""
        if self._is_idx():
            return {name: md5 for name, md5 in RAW_MD5.items() if name.startswith(f"{self.class_name}/")}
        cls = self._class()
        if self.class_name == "SVHN":
            return {cls.split_list[split][1]: cls.split_list[split][2] for split in ("train", "test")}
        listed = [*cls.train_list, *cls.test_list, (cls.meta["filename"], cls.meta["md5"])]
        return {f"{cls.base_folder}/{name}": md5 for name, md5 in listed}

    def _files(self) -> list[str]:
        return [name for pair in self._idx_pairs() for name in pair] if self._is_idx() else list(self._md5())

    def _check(self, folder: Path) -> None:
        """Raise ValueError where a file is not what it should be."""
        from torchvision.datasets.utils import check_integrity

        known = self._md5()
        for name, md5 in tracked(known.items(), f"checking {self.known.name}"):
            if not check_integrity(str(folder / name), md5):
                raise ValueError(f"{name} is not the official file (its md5 is not {md5})")
        if not known:
            self._check_idx(folder)

    def _check_idx(self, folder: Path) -> None:
        # Labels below the lowest that occurs (EMNIST letters have no 0) are damage, too.
        occurring = [label for label, count in enumerate(self.known.train_per_class or ()) if count]
        lowest, highest = (occurring[0], occurring[-1]) if occurring else (0, self.known.num_classes - 1)
        size = (self.known.height, self.known.width)
        pairs = [(folder / images, folder / labels) for images, labels in self._idx_pairs()]
        train, test = (idx.check_pair(images, labels, size, lowest, highest) for images, labels in pairs)
        editions = [(self.known.num_train, self.known.num_test), *self.other_sizes]
        if (train, test) not in editions:
            due = " or ".join(f"{edition[0]} and {edition[1]}" for edition in editions)
            raise ValueError(f"{pairs[0][0].parent} has {train} training and {test} test images, where {due} are due")

    def _hosts(self) -> list[str]:
        cls = self._class()
        if self.class_name == "SVHN":
            urls = [cls.split_list["train"][0]]
        else:
            urls = [cls.url] if hasattr(cls, "url") else list(cls.mirrors)
        return [urlparse(url).hostname or url for url in urls]
