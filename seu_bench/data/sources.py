"""Sources of data sets: any class of ``torchvision.datasets``, scikit-learn's digits, and what a benchmark defines.

torchvision reads the official sets. Their files are checked before: it knows the md5 of the packed MNIST family only.
"""

from __future__ import annotations

import http.client
import inspect
import shlex
import socket
import tarfile
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlparse

import numpy as np

from seu_bench.config.benchmark import DatasetDefinition, FolderDefinition, TorchvisionDefinition
from seu_bench.config.commands import command
from seu_bench.config.options import did_you_mean
from seu_bench.data.dataset import (
    DATA_ROOT_VARIABLE,
    DatasetInfo,
    DatasetState,
    Images,
    RawDataset,
    RawSplit,
    channels_first,
    counted,
    default_data_root,
    described,
    one_line,
    require_memory,
)
from seu_bench.data.decoding import as_pixels
from seu_bench.data.folders import FolderSource, KnownFolderSource
from seu_bench.data.own_files import NpzSource, OwnFiles
from seu_bench.errors import DataCorruptError, DataError, DataMissingError, SpecError, UnknownNameError
from seu_bench.utils.progress import tracked

#: Classes that unpickle a file which they find beside the images, unchecked: it could run any code.
UNTRUSTED: Final = ("LSUN", "LSUNClass")
#: Arguments that are not the user's to give: the harness gives them, or they would change what an image is.
RESERVED: Final = ("root", "download", "transform", "transforms", "target_transform", "loader", "is_valid_file")
#: Seconds without an answer after which a download is given up.
DOWNLOAD_TIMEOUT: Final = 60.0
#: What torchvision and Pillow raise of files that are missing or damaged, and of downloads that fail.
_FILE_ERRORS: Final = (
    *(OSError, RuntimeError, ValueError, TypeError, KeyError, EOFError, AssertionError, SyntaxError),
    *(http.client.HTTPException, tarfile.TarError, zipfile.BadZipFile),
)


def definition_source(
    definition: DatasetDefinition, name: str, root: Path | None = None
) -> OwnFiles | TorchvisionSource:
    """Source of a benchmark's table ``[datasets.NAME]``, whose paths are absolute.

    Args:
        definition: the table.
        name: of the data set.
        root: folder of data sets, where a well-known one lies if the table has no path.
    """
    if isinstance(definition, TorchvisionDefinition):
        return TorchvisionSource(definition, name)
    if not isinstance(definition, FolderDefinition):
        return NpzSource(definition, name)
    if definition.layout == "class_folders":
        return FolderSource(definition, name)
    return KnownFolderSource(definition, name, root)


class TorchvisionSource:
    """A data set that is read through one class of ``torchvision.datasets``.

    Its constructor says how the splits are told apart: by ``train: bool``, by ``split: str`` (``"train"`` and
    ``"test"``), or not at all, whereupon ``test_fraction`` of each class is held out. ``train`` and ``test`` of the
    definition are laid over these arguments; a list of them as ``train`` is of parts that make up the training set.

    Args:
        definition: how it is read.
        name: of the data set.
        known: shape and sizes of an official set, which can be described without its files, and must have them.
        md5: of unpacked files of the MNIST family, by name, where known.
        summary: one line that says what it is.
    """

    def __init__(
        self,
        definition: TorchvisionDefinition,
        name: str,
        known: DatasetInfo | None = None,
        md5: Mapping[str, str] | None = None,
        summary: str | None = None,
    ) -> None:
        self.definition, self.name, self.known, self.md5 = definition, name, known, md5 or {}
        self.summary = summary or f"torchvision.datasets.{definition.class_name}"
        # Decoding can take minutes, and both info() and load() need it.
        self._loaded: tuple[Path, RawDataset] | None = None

    def info(self, root: Path | None) -> DatasetInfo:
        """Shape and sizes; the set is loaded for them where they are not known."""
        return self.known or self.load(root).info

    def state(self, root: Path | None) -> DatasetState:
        """Whether the set can be used. Files of known sets are read and checked: a second for the largest."""
        folder = default_data_root(root)
        if "root" not in self._parameters:
            return DatasetState("embedded")
        state, files = self._files_state(folder), self._official_files()
        if state.status != "complete" or (files and all(files.values())):
            return state
        try:
            if files:
                self.load(root)
            else:
                self._construct(folder)
        except DataMissingError as error:
            return DatasetState("missing", folder, None, error.what)
        except DataError as error:
            return DatasetState("corrupt", folder, state.bytes, error.what)
        return state

    def load(self, root: Path | None) -> RawDataset:
        """Read the set into memory: its array where it has a fitting one, otherwise image by image."""
        folder = default_data_root(root)
        if self._loaded and self._loaded[0] == folder:
            return self._loaded[1]
        state, known = self._files_state(folder), self.known
        if state.status in ("missing", "incomplete"):
            raise self._missing(f"is {state.status}{f', {state.detail}' if state.detail else ''}", folder)
        if state.status == "corrupt":
            raise self._corrupt(state.detail, folder)
        datasets = self._construct(folder)
        splits = [_joined([self._split(part, folder) for part in parts]) for parts in datasets]
        train, test = splits[0], splits[-1]
        shapes = train.images.shape[1:], test.images.shape[1:]
        if known is not None:
            info = counted(known, train.labels, test.labels)
            if info != known or {*shapes} != {(known.channels, known.height, known.width)}:
                due = f"needed: {known.num_train} and {known.num_test}, as many of each class as the official set has"
                what = f"it has {len(train)} training and {len(test)} test images {shapes[0]}, {due}"
                raise self._corrupt(what, folder)
            return RawDataset(info, train, test)
        if shapes[0] != shapes[1]:
            what = f"has images {shapes[0]} in training and {shapes[1]} in test [C, H, W]"
            raise self._unfit(what, "give 'size' and 'channels'", folder)
        names = _class_names(datasets[0][0])
        data = described(self.name, splits, self.definition.test_fraction, self._place(folder), names)
        self._loaded = folder, data
        return data

    def checksum(self) -> str:
        """Empty: torchvision's files are not the user's own."""
        return ""

    def fetch(self, root: Path) -> None:
        """Have torchvision download the set below ``root``, where its class can, and check it where it is known."""
        folder = default_data_root(root)
        if "root" not in self._parameters or (self.known and self.state(folder).status == "complete"):
            return
        if "download" not in self._parameters:
            raise self._unfit("cannot be downloaded by torchvision", "put its files there by hand", folder)
        timeout = socket.getdefaulttimeout()
        socket.setdefaulttimeout(DOWNLOAD_TIMEOUT)  # torchvision sets none and would wait for ever
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for parts in self._arguments:
                for arguments in parts:
                    self._class(root=str(folder), download=True, **arguments)
        except _FILE_ERRORS as error:
            hosts = f" from {', '.join(self._hosts())}" if self._hosts() else ""
            names = f" ({', '.join(files)})" if (files := self._official_files()) else ""
            remedy = f"check the network and try again; or copy the files there by hand{names}; or give --data-root"
            raise self._unfit(f"could not be downloaded{hosts}: {one_line(error)}", remedy, folder) from error
        finally:
            socket.setdefaulttimeout(timeout)
        if self.known and (state := self.state(folder)).status != "complete":
            raise self._corrupt(state.detail, folder)

    @cached_property
    def _class(self) -> Any:
        import torchvision.datasets

        name = self.definition.class_name
        known = [n for n in torchvision.datasets.__all__ if inspect.isclass(getattr(torchvision.datasets, n))]
        if name not in known:
            raise UnknownNameError(
                f"torchvision.datasets has no class {name!r}{did_you_mean(name, known)}",
                where=f"data set {self.name!r}",
                remedy="correct class_name in the benchmark file",
            )
        if name in UNTRUSTED:
            raise SpecError(
                f"torchvision.datasets.{name} would run code that lies beside the images",
                where=f"data set {self.name!r}",
                remedy="make a folder of images or an .npz file of it; docs/guides/own_data.md describes both",
            )
        found = getattr(torchvision.datasets, name)
        if hasattr(found, "_check_legacy_exist"):
            # It would prefer a folder of an old torchvision to the files that are checked, which the name leads to.
            found = type(name, (found,), {"_check_legacy_exist": lambda _: False})
        return found

    @cached_property
    def _parameters(self) -> list[str]:
        """Names of all constructor parameters, those that ``**kwargs`` hands to base classes included."""
        names: dict[str, None] = {}
        for cls in self._class.__mro__:
            if "__init__" in vars(cls):
                own = list(inspect.signature(cls.__init__).parameters.values())[1:]
                names |= dict.fromkeys(p.name for p in own if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL))
                if not any(p.kind == p.VAR_KEYWORD for p in own):
                    break
        return list(names)

    @cached_property
    def _arguments(self) -> list[list[dict[str, Any]]]:
        """Arguments of each part of the training set and, where there is one, of the test set."""
        train = self.definition.train or {}
        parts, test = [*train] if isinstance(train, tuple) else [train], self.definition.test or {}
        usable = [name for name in self._parameters if name not in RESERVED]
        tables = [("train", part) for part in parts] + [("test", test)]
        faults = [
            f"datasets.{self.name}.{table}.{key}: no argument of {self.definition.class_name}"
            for table, values in tables
            for key in values
            if key not in usable
        ]
        if faults:
            raise SpecError(
                f"the arguments of data set {self.name!r} do not fit",
                faults=faults,
                remedy=f"{self.definition.class_name} takes: {', '.join(usable) or 'none'}",
            )
        if "train" in usable:
            return [[{"train": True, **part} for part in parts], [{"train": False, **test}]]
        if "split" in usable:
            return [[{"split": "train", **part} for part in parts], [{"split": "test", **test}]]
        return [parts] if self.definition.test is None else [parts, [test]]

    def _construct(self, folder: Path) -> list[list[Any]]:
        """The sets that make up the training set, and those that make up the test set."""
        where = {"root": str(folder)} if "root" in self._parameters else {}
        try:
            return [[self._class(**where, **arguments) for arguments in parts] for parts in self._arguments]
        except _FILE_ERRORS as error:
            if self.known is not None and self._official_files():
                raise self._corrupt(one_line(error), folder) from error
            if isinstance(error, TypeError | ValueError):
                raise SpecError(
                    f"{self.summary} refuses {self._arguments}: {one_line(error)}",
                    where=f"data set {self.name!r}",
                    remedy=f"give its arguments in [datasets.{self.name}.train] and [datasets.{self.name}.test]",
                ) from error
            raise self._missing(f"is missing: {one_line(error)}", folder) from error

    def _hosts(self) -> list[str]:
        """Where torchvision has it from, as far as its class says."""
        cls = self._class
        urls = [cls.url] if hasattr(cls, "url") else getattr(cls, "mirrors", ())
        if hasattr(cls, "split_list"):
            urls = [cls.split_list["train"][0]]
        return [host for url in urls if isinstance(url, str) and (host := urlparse(url).hostname)]

    def _official_files(self) -> dict[str, str | None]:
        """Files of a known set below the root, and their md5 where it is known; none where the class does not say."""
        cls = self._class
        if self.known is None:
            return {}
        if hasattr(cls, "split_list"):  # SVHN
            return {cls.split_list[split][1]: cls.split_list[split][2] for split in ("train", "test")}
        if hasattr(cls, "train_list"):  # CIFAR
            listed = [*cls.train_list, *cls.test_list, (cls.meta["filename"], cls.meta["md5"])]
            return {f"{cls.base_folder}/{name}": md5 for name, md5 in listed}
        if not hasattr(cls, "raw_folder"):
            return {}
        split = self._arguments[0][0].get("split")
        prefixes = (f"emnist-{split}-train", f"emnist-{split}-test") if split else ("train", "t10k")
        names = [f"{prefix}-{kind}-ubyte" for prefix in prefixes for kind in ("images-idx3", "labels-idx1")]
        return {f"{self.definition.class_name}/raw/{name}": self.md5.get(name) for name in names}

    def _files_state(self, folder: Path) -> DatasetState:
        """Whether the official files are there, and have the md5s that are known."""
        from torchvision.datasets.utils import check_integrity

        files = self._official_files()
        missing = [name for name in files if not (folder / name).is_file()]
        if files and len(missing) == len(files):
            return DatasetState("missing", folder)
        size = sum((folder / name).stat().st_size for name in files if name not in missing) or None
        if missing:
            return DatasetState("incomplete", folder, size, f"missing: {', '.join(missing)}")
        for name, md5 in tracked(files.items(), f"checking {self.name}"):
            if md5 and not check_integrity(str(folder / name), md5):
                what = f"{name} is not the official file (its md5 is not {md5})"
                return DatasetState("corrupt", folder, size, what)
        return DatasetState("complete", folder, size)

    def _fetch_command(self, folder: Path) -> str:
        """A shell command that downloads the set; ``seu-bench data fetch`` has known ones only."""
        if self.known is not None:
            return command("data", "fetch", self.name, data_root=folder)
        name = self.definition.class_name
        given = ({"root": str(folder), **each, "download": True} for parts in self._arguments for each in parts)
        calls = (f"{name}({', '.join(f'{key}={value!r}' for key, value in each.items())})" for each in given)
        return shlex.join(["python", "-c", f"from torchvision.datasets import {name}; {'; '.join(calls)}"])

    def _split(self, dataset: Any, folder: Path) -> RawSplit:
        size, channels = self.definition.size, self.definition.channels
        size = (size, size) if isinstance(size, int) else size
        split = array_split(dataset)
        if split is None and self._official_files():
            raise self._corrupt("its files do not hold 8-bit images and a label for each", folder)
        if split is None or channels not in (None, split.images.shape[1]) or size not in (None, split.images.shape[2:]):
            split = self._one_by_one(dataset, folder, channels, size)
        if split.labels.min() < 0:
            remedy = "choose a split in which every image is labelled"
            raise self._unfit(f"has negative labels ({split.labels.min()})", remedy, folder)
        return split

    def _one_by_one(self, dataset: Any, folder: Path, channels: int | None, size: tuple[int, int] | None) -> RawSplit:
        from PIL import Image

        # What torchvision makes up has the size that the definition asks for, not that of files.
        require_memory(self.name, len(dataset), getattr(dataset, "image_size", size or ()))
        pixels: list[Images] = []
        labels: list[int] = []
        for index in tracked(range(len(dataset)), f"reading images of {self.name}"):
            try:
                item = dataset[index]
                if not (isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], Image.Image)):
                    what = "does not give pairs of an image and a label"
                    raise self._unfit(what, "choose a classification set", folder)
                image, label = item
                channels = channels or (1 if image.mode in ("1", "L") else 3)
                pixels.append(as_pixels(image, channels, size))
            except (*_FILE_ERRORS, Image.DecompressionBombError) as error:
                what = f"image {index} cannot be read: {one_line(error)}"
                raise self._corrupt(what, folder) from error
            if not isinstance(label, int | np.integer):
                what = f"has labels that are {type(label).__name__}, not int"
                raise self._unfit(what, "choose a set, or arguments, with int labels", folder)
            labels.append(int(label))
            if pixels[0].shape != pixels[-1].shape:
                what = f"has images of different sizes: {pixels[0].shape[1:]} first, image {index} "
                remedy = f"give [datasets.{self.name}] size = [HEIGHT, WIDTH]"
                raise self._unfit(f"{what}{pixels[-1].shape[1:]}", remedy, folder)
            if index == 0:
                require_memory(self.name, len(dataset), pixels[0].shape)
        if not pixels:
            raise self._unfit("has no images", "check its arguments", folder)
        return RawSplit(np.stack(pixels), np.asarray(labels, dtype=np.int64))

    def _missing(self, what: str, folder: Path) -> DataError:
        remedy = "torchvision cannot download it: put its files there by hand"
        if "download" in self._parameters:
            or_else = f"(or point --data-root or {DATA_ROOT_VARIABLE} at the folder that holds it)"
            remedy = f"{self._fetch_command(folder)} {or_else}"
        return self._unfit(what, remedy, folder, DataMissingError)

    def _corrupt(self, detail: str, folder: Path) -> DataError:
        remedy = f"delete the set's files and fetch them again: {self._fetch_command(folder)}"
        return self._unfit(f"is corrupt: {detail}", remedy, folder, DataCorruptError)

    def _unfit(self, what: str, remedy: str, folder: Path, kind: type[DataError] = DataError) -> DataError:
        return kind(f"data set {self.name!r} {what}", where=self._place(folder), remedy=remedy)

    def _place(self, folder: Path) -> str:
        """The folder, of which some classes know nothing: they make their images up."""
        return str(folder) if "root" in self._parameters else self.summary


def _joined(parts: list[RawSplit]) -> RawSplit:
    """One split of several: their images in order."""
    if len({part.images.shape[1:] for part in parts}) > 1:
        raise SpecError(
            f"parts of a training set have images {' and '.join(str(part.images.shape[1:]) for part in parts)}",
            remedy="give 'size' and 'channels' of the data set",
        )
    if len(parts) == 1:
        return parts[0]
    return RawSplit(*(np.concatenate(arrays) for arrays in zip(*((it.images, it.labels) for it in parts), strict=True)))


def _class_names(dataset: Any) -> list[str] | None:
    """The names that a set of torchvision has for its labels, in their order; ``None``: it has none."""
    names: Sequence[Any] | None = getattr(dataset, "classes", None)
    if not isinstance(names, list | tuple):
        return None
    # ImageNet has several names for each class.
    named = [name[0] if isinstance(name, tuple) and name else name for name in names]
    return named if named and all(isinstance(name, str) for name in named) else None


def array_split(dataset: Any) -> RawSplit | None:
    """The 8-bit images and labels that a set of torchvision holds as arrays; ``None`` where it has no such arrays."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some classes warn about names that they keep for old callers
        data = getattr(dataset, "data", None)
        targets = getattr(dataset, "targets", getattr(dataset, "labels", None))
    if data is None or targets is None or isinstance(data, list):
        return None
    pixels, labels = np.asarray(data), np.asarray(targets)
    fits = pixels.dtype == np.uint8 and pixels.ndim in (3, 4) and labels.shape == pixels.shape[:1]
    if not fits or not len(labels) or not np.issubdtype(labels.dtype, np.integer):
        return None
    images = channels_first(pixels)
    return RawSplit(images, labels.astype(np.int64)) if images.shape[1] in (1, 3) else None


class DigitsSource:
    """scikit-learn's 1,797 digits of 8x8 pixels, which come with the library: no files, no network.

    It has no test set of its own: 25 % of each class are held out, the same ones in every run.
    """

    summary = "1,797 handwritten digits, 8x8 grey, 10 classes; comes with scikit-learn"
    _train, _test = (134, 137, 133, 138, 136, 137, 136, 135, 131, 135), (44, 45, 44, 45, 45, 45, 45, 44, 43, 45)
    _names = tuple("0123456789")

    def info(self, root: Path | None) -> DatasetInfo:
        """Shape and exact sizes."""
        return DatasetInfo("digits", 1, 8, 8, 10, 1352, 445, self._train, self._test, self._names)

    def state(self, root: Path | None) -> DatasetState:
        """Always embedded."""
        return DatasetState("embedded")

    def load(self, root: Path | None) -> RawDataset:
        """The set in memory, its grey values 0..16 spread over 0..255.

        It is read from scikit-learn's file: importing scikit-learn takes as long as importing torch does.
        """
        spec = find_spec("sklearn")
        values = np.loadtxt(Path(str(spec and spec.origin)).parent / "datasets/data/digits.csv.gz", delimiter=",")
        images = np.round(values[:, :-1].reshape(-1, 1, 8, 8) * (255 / 16)).astype(np.uint8)
        split = RawSplit(images, values[:, -1].astype(np.int64))
        return described("digits", [split], test_fraction=0.25, class_names=self._names)

    def fetch(self, root: Path) -> None:
        """Do nothing: the images come with scikit-learn."""
