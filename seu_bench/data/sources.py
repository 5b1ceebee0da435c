"""Sources of data sets: any class of ``torchvision.datasets``, scikit-learn's digits, and what a benchmark defines."""

from __future__ import annotations

import http.client
import inspect
import operator
import socket
import tarfile
import zipfile
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np

from seu_bench.config.benchmark import (
    DatasetDefinition,
    FeaturesDefinition,
    FilesDefinition,
    FolderDefinition,
    TokensDefinition,
    TorchvisionDefinition,
)
from seu_bench.config.commands import command
from seu_bench.config.options import did_you_mean
from seu_bench.data.dataset import (
    DATA_ROOT_VARIABLE,
    DatasetInfo,
    DatasetState,
    Images,
    Labels,
    RawDataset,
    RawSplit,
    channels_first,
    default_data_root,
    describe_dataset,
    one_line,
    require_memory,
)
from seu_bench.data.listed_files import FilesSource
from seu_bench.data.own_files import FolderSource, NpzSource, as_pixels, decoded_in_order
from seu_bench.data.own_tables import FeaturesSource, TokensSource
from seu_bench.errors import DataCorruptError, DataError, DataMissingError, SpecError, UnknownNameError

#: Classes that unpickle a file which they find beside the images, unchecked: it could run any code.
UNTRUSTED: Final = ("LSUN", "LSUNClass")
#: Seconds without an answer after which a download is given up.
DOWNLOAD_TIMEOUT: Final = 60.0
#: What torchvision and Pillow raise of files that are missing or damaged, and of downloads that fail.
_FILE_ERRORS: Final = (
    *(OSError, RuntimeError, ValueError, TypeError, KeyError, EOFError, AssertionError, SyntaxError),
    *(http.client.HTTPException, tarfile.TarError, zipfile.BadZipFile),
)


def definition_source(definition: DatasetDefinition, name: str) -> FolderSource | NpzSource | TorchvisionSource:
    """Return the source of a benchmark's table ``[datasets.NAME]``, whose paths are absolute."""
    if isinstance(definition, TorchvisionDefinition):
        return TorchvisionSource(definition, name)
    kinds: dict[type, type[FolderSource | NpzSource]] = {
        FolderDefinition: FolderSource,
        FilesDefinition: FilesSource,
        FeaturesDefinition: FeaturesSource,
        TokensDefinition: TokensSource,
    }
    return kinds.get(type(definition), NpzSource)(definition, name)


@dataclass
class TorchvisionSource:
    """A data set that is read through one class of ``torchvision.datasets``, which checks its files.

    Its constructor has ``train: bool`` or ``split: str``; otherwise ``test_fraction`` of each class is held out.
    Arguments of the definition are laid over these; a list as ``train`` is of parts that make up the training set.

    Attributes:
        known: shape and sizes of an official set, which can be described without its files, and must have them.
        pattern: where its files lie below the data root.
        sha256: checksum of the loaded set, where torchvision does not check its files.
    """

    definition: TorchvisionDefinition
    name: str
    known: DatasetInfo | None = None
    pattern: str = ""
    sha256: str | None = None
    # Decoding can take minutes, and both info() and load() need it.
    _loaded: dict[Path, RawDataset] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """Its class."""
        return f"torchvision.datasets.{self.definition.class_name}"

    def info(self, root: Path | None) -> DatasetInfo:
        """Shape and sizes; the set is loaded for them where they are not known."""
        return self.known or self.load(root).info

    def state(self, root: Path | None) -> DatasetState:
        """Whether the set can be used; it is loaded to see."""
        if "root" not in self._parameters:
            return DatasetState("embedded")
        folder = default_data_root(root)
        size = sum(file.stat().st_size for file in folder.glob(self.pattern)) if self.pattern else None
        try:
            self.load(root)
        except DataMissingError as error:
            return DatasetState("missing", folder, None, "" if self.known else error.what)
        except DataError as error:
            return DatasetState("corrupt", folder, size, error.what)
        return DatasetState("complete", folder, size)

    def load(self, root: Path | None) -> RawDataset:
        """Read the set into memory: its array where it has a fitting one, otherwise image by image."""
        folder = default_data_root(root)
        if folder not in self._loaded:
            self._loaded = {folder: self._read(folder)}
        return self._loaded[folder]

    def checksum(self) -> str:
        """Empty: torchvision's files are not the user's own."""
        return ""

    def fetch(self, root: Path) -> None:
        """Have torchvision download the set below ``root``, where its class can, and check it where it is known."""
        if "root" not in self._parameters:
            return
        folder = default_data_root(root)
        timeout = socket.getdefaulttimeout()
        socket.setdefaulttimeout(DOWNLOAD_TIMEOUT)  # torchvision sets none and would wait for ever
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for arguments in chain(*self._arguments):
                self._class(root=str(folder), download=True, **arguments)
        except _FILE_ERRORS as error:
            what = f"could not be downloaded: {one_line(error)}"
            remedy = f"check the network and try again; or copy {self.pattern or 'its files'} there by hand"
            raise self._fault(what, f"{remedy}; or give --data-root", folder) from error
        finally:
            socket.setdefaulttimeout(timeout)
        if self.known:
            self.load(root)

    @cached_property
    def _class(self) -> Any:
        import torchvision.datasets

        name, where = self.definition.class_name, f"data set {self.name!r}"
        found = getattr(torchvision.datasets, name, None)
        if not inspect.isclass(found):
            what = f"torchvision.datasets has no class {name!r}{did_you_mean(name, torchvision.datasets.__all__)}"
            raise UnknownNameError(what, where=where, remedy="correct class_name in the benchmark file")
        if name in UNTRUSTED:
            what = f"torchvision.datasets.{name} would run code that lies beside the images"
            raise SpecError(what, where=where, remedy="make a folder of images or an .npz file of it")
        return found

    @cached_property
    def _parameters(self) -> set[str]:
        """Names of all constructor parameters, those that ``**kwargs`` hands to base classes included."""
        names: set[str] = set()
        for cls in self._class.__mro__:
            own = inspect.signature(cls.__init__).parameters
            names |= own.keys()
            if not any(it.kind == it.VAR_KEYWORD for it in own.values()):
                break
        return names

    @cached_property
    def _arguments(self) -> list[list[dict[str, Any]]]:
        """Arguments of each part of the training set and, where there is one, of the test set."""
        train, test = self.definition.train or {}, self.definition.test or {}
        parts = [*train] if isinstance(train, tuple) else [train]
        if "train" in self._parameters:
            return [[{"train": True, **part} for part in parts], [{"train": False, **test}]]
        if "split" in self._parameters:
            return [[{"split": "train", **part} for part in parts], [{"split": "test", **test}]]
        return [parts] if self.definition.test is None else [parts, [test]]

    def _read(self, folder: Path) -> RawDataset:
        known, name = self.known, self.definition.class_name
        fetch = command("data", "fetch", self.name, data_root=folder)
        if known and not any(folder.glob(self.pattern)):
            remedy = f"{fetch} (or point --data-root or {DATA_ROOT_VARIABLE} at the folder that holds it)"
            raise self._fault("is missing", remedy, folder, DataMissingError)
        where = {"root": str(folder)} if "root" in self._parameters else {}
        try:
            sets = [[self._class(**where, **arguments) for arguments in parts] for parts in self._arguments]
        except _FILE_ERRORS as error:
            why, remedy = one_line(error), "put its files there"
            if known:
                what, remedy = (
                    f"is corrupt: files are damaged or missing ({why})",
                    f"delete {self.pattern} there, and {fetch}",
                )
                raise self._fault(what, remedy, folder, DataCorruptError) from error
            if isinstance(error, TypeError | ValueError):
                what = f"is refused by torchvision.datasets.{name} with {self._arguments}: {why}"
                remedy = f"give arguments in [datasets.{self.name}.train] and [datasets.{self.name}.test]"
                raise self._fault(what, remedy, folder) from error
            if "download" in self._parameters:
                remedy += f", e.g. by torchvision.datasets.{name}({str(folder)!r}, download=True)"
            raise self._fault(f"is missing: {why}", remedy, folder, DataMissingError) from error
        splits = []
        for parts in sets:
            images, labels = zip(*(self._split(part, folder) for part in parts), strict=True)
            splits.append(RawSplit(np.concatenate(images), np.concatenate(labels)))
        names = getattr(sets[0][0], "classes", None)
        if names:  # ImageNet has several names for each class
            names = [str(each[0] if isinstance(each, tuple) else each) for each in names]
        data = describe_dataset(self.name, splits, self.definition.test_fraction, str(folder), names)
        if known is None:
            return data
        data = replace(data, known_checksums=data.read_checksums())
        if replace(data.info, class_names=known.class_names) != known or self.sha256 not in (None, data.checksum()):
            what = (
                f"is corrupt: its {len(data.train):,} training and {len(data.test):,} test images are not those of the"
            )
            what += f" official set, which has {known.num_train:,} and {known.num_test:,}, so many of each class"
            raise self._fault(what, f"delete {self.pattern} there, and {fetch}", folder, DataCorruptError)
        return replace(data, info=known)

    def _split(self, dataset: Any, folder: Path) -> tuple[Images, Labels]:
        size, channels = self.definition.size, self.definition.channels
        size = (size, size) if isinstance(size, int) else size
        split = array_split(dataset)
        if split is None or channels not in (None, split.images.shape[1]) or size not in (None, split.images.shape[2:]):
            split = self._one_by_one(dataset, folder, channels, size)
        if not len(split) or split.labels.min() < 0:
            what = f"negative labels ({split.labels.min()})" if len(split) else "no images"
            raise self._fault(f"has {what}", "choose a split in which every image is labelled", folder)
        return split.images, split.labels

    def _one_by_one(self, dataset: Any, folder: Path, channels: int | None, size: tuple[int, int] | None) -> RawSplit:
        labels: list[int] = []
        pixels: list[Images] = []

        def decode(index: int) -> Images:
            nonlocal channels
            try:
                image, label = dataset[index]
                channels = channels or (1 if image.mode in ("1", "L") else 3)
                labels.append(operator.index(label))
            except (TypeError, AttributeError, LookupError) as error:
                what = f"it is no pair of an image and an int ({one_line(error)})"
                raise ValueError(f"{what}: choose a classification set, or other arguments") from error
            return as_pixels(image, channels, size)

        for image in decoded_in_order(range(len(dataset)), decode, self.name, threads=1):
            if not pixels:
                require_memory(self.name, len(dataset), image.shape)
            pixels.append(image)
            if image.shape != pixels[0].shape:
                what = f"has images of different sizes: {pixels[0].shape[1:]} first, then {image.shape[1:]}"
                raise self._fault(what, f"give [datasets.{self.name}] size = [HEIGHT, WIDTH]", folder)
        return RawSplit(np.stack(pixels) if pixels else np.empty((0, 1, 1, 1), np.uint8), np.array(labels, np.int64))

    def _fault(self, what: str, remedy: str, folder: Path, kind: type[DataError] = DataError) -> DataError:
        return kind(f"data set {self.name!r} {what}", where=str(folder), remedy=remedy)


def array_split(dataset: Any) -> RawSplit | None:
    """The 8-bit images and labels that a set of torchvision holds as arrays; ``None`` where it has no such arrays."""
    data, targets = getattr(dataset, "data", None), getattr(dataset, "targets", getattr(dataset, "labels", None))
    if data is None or targets is None or isinstance(data, list):
        return None
    pixels, labels = np.asarray(data), np.asarray(targets)
    is_whole = pixels.ndim in (3, 4) and len(labels) and labels.shape == pixels.shape[:1]
    if not is_whole or pixels.dtype != np.uint8 or labels.dtype.kind not in "ui":
        return None
    images = channels_first(pixels)
    return RawSplit(images, labels.astype(np.int64)) if images.shape[1] in (1, 3) else None


class DigitsSource:
    """scikit-learn's 1,797 digits of 8x8 pixels: no files, no network.

    It has no test set of its own: 25 % of each class are held out, the same ones in every run.
    """

    summary = "1,797 handwritten digits, 8x8 grey, 10 classes; comes with scikit-learn"
    _train, _test = (134, 137, 133, 138, 136, 137, 136, 135, 131, 135), (44, 45, 44, 45, 45, 45, 45, 44, 43, 45)

    def info(self, root: Path | None) -> DatasetInfo:
        """Shape and exact sizes."""
        return DatasetInfo("digits", 1, 8, 8, 10, 1352, 445, self._train, self._test, tuple("0123456789"))

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
        return describe_dataset("digits", [split], test_fraction=0.25, class_names="0123456789")

    def fetch(self, root: Path) -> None:
        """Do nothing: the images come with scikit-learn."""
