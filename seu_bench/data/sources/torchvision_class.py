"""Any classification set of ``torchvision.datasets`` by the name of its class."""

from __future__ import annotations

import inspect
import shlex
import warnings
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seu_bench.config.benchmark import TorchvisionDefinition
from seu_bench.config.options import did_you_mean
from seu_bench.data.dataset import DatasetInfo, DatasetState, Images, RawDataset, RawSplit
from seu_bench.data.sources.common import (
    as_pixels,
    channels_first,
    default_data_root,
    described,
    download_bars,
    one_line,
    require_memory,
)
from seu_bench.errors import DataCorruptError, DataError, DataMissingError, SpecError, UnknownNameError
from seu_bench.utils.progress import tracked

#: Classes that unpickle a file which they find beside the images, unchecked: it could run any code.
UNTRUSTED = ("LSUN", "LSUNClass")

#: Arguments that are not the user's to give: the harness gives them, or they would change what an image is.
RESERVED = ("root", "download", "transform", "transforms", "target_transform", "loader", "is_valid_file")


class TorchvisionClassSource:
    """A data set that is read through one class of ``torchvision.datasets``.

    Its constructor says how the splits are told apart: by ``train: bool``, by ``split: str`` (``"train"`` and
    ``"test"``), or not at all, whereupon ``test_fraction`` of each class is held out. ``train`` and ``test`` of the
    definition are laid over these arguments; a list of them as ``train`` is of parts that make up the training set.
    """

    def __init__(self, definition: TorchvisionDefinition, name: str) -> None:
        self.definition, self.name = definition, name
        self.summary = f"torchvision.datasets.{definition.class_name}"
        # Decoding can take minutes, and both info() and load() need it.
        self._loaded: tuple[Path, RawDataset] | None = None

    def info(self, root: Path | None) -> DatasetInfo:
        """Shape and sizes; the set is loaded for them, see :meth:`load`."""
        return self.load(root).info

    def state(self, root: Path | None) -> DatasetState:
        """Whether torchvision finds the set below the root; images are not decoded."""
        folder = default_data_root(root)
        if "root" not in self._parameters:
            return DatasetState("embedded")
        try:
            self._construct(folder, download=False)
        except DataMissingError as error:
            return DatasetState("missing", folder, None, error.what)
        return DatasetState("complete", folder)

    def load(self, root: Path | None) -> RawDataset:
        """Read the set into memory: its array where it has a fitting one, otherwise image by image."""
        folder = default_data_root(root)
        if self._loaded and self._loaded[0] == folder:
            return self._loaded[1]
        datasets = self._construct(folder, download=False)
        splits = [joined([self._split(part, folder) for part in parts]) for parts in datasets]
        train, test = (split.images.shape[1:] for split in (splits[0], splits[-1]))
        if train != test:
            what = f"has images {train} in training and {test} in test [C, H, W]"
            raise self._unfit(what, "give 'size' and 'channels'", folder)
        data = described(
            self.name, splits, self.definition.test_fraction, self._place(folder), _class_names(datasets[0][0])
        )
        self._loaded = (folder, data)
        return data

    def checksum(self) -> str:
        """Empty: torchvision's files are not the user's own."""
        return ""

    def fetch(self, root: Path) -> None:
        """Have torchvision download the set below ``root``, where its class can."""
        if "root" not in self._parameters:
            return
        if "download" not in self._parameters:
            raise self._unfit("cannot be downloaded by torchvision", "put its files there by hand", root)
        root.mkdir(parents=True, exist_ok=True)
        try:
            with download_bars(self.name):
                self._construct(root, download=True)
        except DataMissingError as error:
            cause = error.__cause__ or error
            remedy = "check the network and try again, or copy the files there by hand"
            raise self._unfit(f"could not be downloaded: {one_line(cause)}", remedy, root) from cause

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
        return getattr(torchvision.datasets, name)

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
        owner = self.definition.class_name
        faults = [
            f"datasets.{self.name}.{table}.{key}: no argument of {owner}{did_you_mean(key, usable)}"
            for table, tables in (("train", parts), ("test", [test]))
            for values in tables
            for key in values
            if key not in usable
        ]
        if faults:
            raise SpecError(
                f"the arguments of data set {self.name!r} do not fit",
                faults=faults,
                remedy=f"{owner} takes: {', '.join(usable) or 'none'}",
            )
        if "train" in usable:
            return [[{"train": True, **part} for part in parts], [{"train": False, **test}]]
        if "split" in usable:
            return [[{"split": "train", **part} for part in parts], [{"split": "test", **test}]]
        return [parts] if self.definition.test is None else [parts, [test]]

    def _construct(self, folder: Path, *, download: bool) -> list[list[Any]]:
        """The sets that make up the training set, and those that make up the test set."""
        return [[self._part(folder, each, download=download) for each in parts] for parts in self._arguments]

    def _part(self, folder: Path, arguments: dict[str, Any], *, download: bool) -> Any:
        common: dict[str, Any] = {"root": str(folder)} if "root" in self._parameters else {}
        if "download" in self._parameters:
            common["download"] = download
        try:
            return self._class(**common, **arguments)
        except (TypeError, ValueError) as error:
            raise SpecError(
                f"{self.summary} refuses {arguments}: {one_line(error)}",
                where=f"data set {self.name!r}",
                remedy=f"give its arguments in [datasets.{self.name}.train] and [datasets.{self.name}.test]",
            ) from error
        except (RuntimeError, OSError, EOFError) as error:
            by_hand = "torchvision cannot download it: put its files there by hand"
            remedy = self._download_command(folder) if "download" in common else by_hand
            raise self._unfit(f"is missing: {one_line(error)}", remedy, folder, DataMissingError) from error

    def _download_command(self, folder: Path) -> str:
        """A shell command that downloads the set; ``seu-bench data fetch`` knows registered sets only."""
        name = self.definition.class_name
        given = [
            {"root": str(folder), **arguments, "download": True} for parts in self._arguments for arguments in parts
        ]
        calls = (f"{name}({', '.join(f'{key}={value!r}' for key, value in each.items())})" for each in given)
        return shlex.join(["python", "-c", f"from torchvision.datasets import {name}; {'; '.join(calls)}"])

    def _split(self, dataset: Any, folder: Path) -> RawSplit:
        size, channels = self.definition.size, self.definition.channels
        size = (size, size) if isinstance(size, int) else size
        split = array_split(dataset)
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
            except (OSError, SyntaxError, RuntimeError, Image.DecompressionBombError) as error:
                what = f"has an image {index} that cannot be read: {one_line(error)}"
                raise self._unfit(
                    what, "delete the set's files and fetch it again", folder, DataCorruptError
                ) from error
            if not (isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], Image.Image)):
                raise self._unfit("does not give pairs of an image and a label", "choose a classification set", folder)
            image, label = item
            if not isinstance(label, int | np.integer):
                what = f"has labels that are {type(label).__name__}, not int"
                raise self._unfit(what, "choose a set, or arguments, with int labels", folder)
            channels = channels or (1 if image.mode in ("1", "L") else 3)
            try:
                pixels.append(as_pixels(image, channels, size))
            except (OSError, SyntaxError, ValueError) as error:
                raise self._unfit(
                    f"has an unusable image {index}: {one_line(error)}", "leave it out", folder
                ) from error
            first, last = pixels[0].shape[1:], pixels[-1].shape[1:]
            if first != last:
                what = f"has images of different sizes: {first} first, image {index} {last}"
                raise self._unfit(what, f"give [datasets.{self.name}] size = [HEIGHT, WIDTH]", folder)
            labels.append(int(label))
            if index == 0:
                require_memory(self.name, len(dataset), pixels[0].shape)
        if not pixels:
            raise self._unfit("has no images", "check its arguments", folder)
        return RawSplit(np.stack(pixels), np.asarray(labels, dtype=np.int64))

    def _unfit(self, what: str, remedy: str, folder: Path, kind: type[DataError] = DataError) -> DataError:
        return kind(f"data set {self.name!r} {what}", where=self._place(folder), remedy=remedy)

    def _place(self, folder: Path) -> str:
        """The folder, of which some classes know nothing: they make their images up."""
        return str(folder) if "root" in self._parameters else self.summary


def joined(parts: list[RawSplit]) -> RawSplit:
    """One split of several: their images in order.

    Raises:
        SpecError: they differ in shape.
    """
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
    names = getattr(dataset, "classes", None)
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
    images: NDArray[Any] = channels_first(pixels)
    return RawSplit(images, labels.astype(np.int64)) if images.shape[1] in (1, 3) else None
