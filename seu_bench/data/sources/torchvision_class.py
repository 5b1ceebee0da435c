"""Any classification set of ``torchvision.datasets`` by the name of its class."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seu_bench.config.benchmark import TorchvisionDefinition
from seu_bench.config.options import did_you_mean
from seu_bench.data.dataset import DatasetInfo, DatasetState, Images, Labels, RawDataset, RawSplit
from seu_bench.data.sources.common import (
    as_pixels,
    as_size,
    channels_first,
    default_data_root,
    described,
    download_bars,
    one_line,
    split_by_fraction,
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
    definition are laid over these arguments.
    """

    def __init__(self, definition: TorchvisionDefinition, name: str) -> None:
        self.definition = definition
        self.name = name
        # Decoding can take minutes, and both info() and load() need it.
        self._loaded: tuple[Path, RawDataset] | None = None

    @property
    def summary(self) -> str:
        """One line that says what it is."""
        return f"torchvision.datasets.{self.definition.class_name}"

    def info(self, root: Path | None) -> DatasetInfo:
        """Shape and sizes; the set is loaded for them.

        Raises:
            As :meth:`load`.
        """
        return self.load(root).info

    def state(self, root: Path | None) -> DatasetState:
        """Whether torchvision finds the set below the root; images are not decoded."""
        folder = default_data_root(root)
        if "root" not in self._parameters():
            return DatasetState("embedded")
        try:
            self._construct(folder, download=False)
        except DataMissingError as error:
            return DatasetState("missing", folder, None, error.what)
        return DatasetState("complete", folder)

    def load(self, root: Path | None) -> RawDataset:
        """Read the set into memory: its array where it has a fitting one, otherwise image by image.

        Raises:
            UnknownNameError: torchvision has no such class.
            SpecError: the arguments do not fit its constructor.
            DataMissingError: torchvision does not find the files.
            DataCorruptError: an image cannot be decoded.
            DataError: it is not a classification set, or its images differ in size and no ``size`` is given.
        """
        folder = default_data_root(root)
        if self._loaded and self._loaded[0] == folder:
            return self._loaded[1]
        train, *rest = (self._split(dataset) for dataset in self._construct(folder, download=False))
        if rest:
            test = rest[0]
            if train.images.shape[1:] != test.images.shape[1:]:
                raise self._unfit(
                    f"has images {train.images.shape[1:]} in training and {test.images.shape[1:]} in test [C, H, W]",
                    "give 'size' and 'channels'",
                )
        else:
            train, test = split_by_fraction(train, self.definition.test_fraction, self.name)
        self._loaded = (folder, described(self.name, train, test))
        return self._loaded[1]

    def fetch(self, root: Path) -> None:
        """Have torchvision download the set below ``root``, where its class can.

        Raises:
            DataError: the class cannot download, or the download failed.
        """
        if "download" not in self._parameters():
            if "root" not in self._parameters():
                return
            raise self._unfit("cannot be downloaded by torchvision", "put its files there by hand", where=root)
        root.mkdir(parents=True, exist_ok=True)
        try:
            with download_bars(self.name):
                self._construct(root, download=True)
        except DataMissingError as error:
            cause = error.__cause__ or error
            raise self._unfit(
                f"could not be downloaded: {one_line(cause)}",
                "check the network and try again, or copy the files there by hand",
                where=root,
            ) from cause

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

    def _parameters(self) -> list[str]:
        """Names of all constructor parameters, those that ``**kwargs`` hands to base classes included."""
        names: list[str] = []
        for cls in self._class().__mro__:
            if "__init__" not in vars(cls):
                continue
            own = list(inspect.signature(cls.__init__).parameters.values())[1:]
            kinds = {parameter.kind for parameter in own}
            variadic = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
            names += [p.name for p in own if p.kind not in variadic and p.name not in names]
            if inspect.Parameter.VAR_KEYWORD not in kinds:
                break
        return names

    def _arguments(self) -> list[dict[str, Any]]:
        """Arguments of the training set and, where there is one, of the test set."""
        known = self._parameters()
        given = (self.definition.train or {}, self.definition.test or {})
        usable = [name for name in known if name not in RESERVED]
        owner = self.definition.class_name
        faults = [
            f"datasets.{self.name}.{table}.{key}: no argument of {owner}{did_you_mean(key, usable)}"
            for table, values in zip(("train", "test"), given, strict=True)
            for key in values
            if key not in usable
        ]
        if faults:
            raise SpecError(
                f"the arguments of data set {self.name!r} do not fit",
                faults=faults,
                remedy=f"{owner} takes: {', '.join(usable) or 'none'}",
            )
        defaults: tuple[dict[str, Any], ...] = ({},)
        if "train" in known:
            defaults = ({"train": True}, {"train": False})
        elif "split" in known:
            defaults = ({"split": "train"}, {"split": "test"})
        elif self.definition.test is not None:
            defaults = ({}, {})
        return [{**default, **table} for default, table in zip(defaults, given, strict=False)]

    def _construct(self, folder: Path, *, download: bool) -> list[Any]:
        cls, known = self._class(), self._parameters()
        common: dict[str, Any] = {"root": str(folder)} if "root" in known else {}
        if "download" in known:
            common["download"] = download
        built = []
        for arguments in self._arguments():
            try:
                built.append(cls(**common, **arguments))
            except (TypeError, ValueError) as error:
                raise SpecError(
                    f"torchvision.datasets.{self.definition.class_name} refuses {arguments}: {one_line(error)}",
                    where=f"data set {self.name!r}",
                    remedy=f"give its arguments in [datasets.{self.name}.train] and [datasets.{self.name}.test]",
                ) from error
            except (RuntimeError, OSError, EOFError) as error:
                raise DataMissingError(
                    f"data set {self.name!r} is missing: {one_line(error)}",
                    where=str(folder),
                    remedy=self._download_command(folder)
                    if "download" in known
                    else "torchvision cannot download it: put its files there by hand",
                ) from error
        return built

    def _download_command(self, folder: Path) -> str:
        """A shell command that downloads the set; ``seu-bench data fetch`` knows registered sets only."""
        name = self.definition.class_name
        calls = []
        for arguments in self._arguments():
            given = {"root": str(folder), **arguments, "download": True}
            calls.append(f"{name}({', '.join(f'{key}={value!r}' for key, value in given.items())})")
        return f'python -c "from torchvision.datasets import {name}; {"; ".join(calls)}"'

    def _split(self, dataset: Any) -> RawSplit:
        split = self._in_bulk(dataset)
        return split if split is not None else self._one_by_one(dataset)

    def _in_bulk(self, dataset: Any) -> RawSplit | None:
        """The set's own array, where it has one that needs neither resizing nor conversion."""
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
        size = as_size(self.definition.size)
        if images.shape[1] not in (1, 3) or self.definition.channels not in (None, images.shape[1]):
            return None
        if size not in (None, images.shape[2:]):
            return None
        return RawSplit(images, self._checked(labels.astype(np.int64)))

    def _one_by_one(self, dataset: Any) -> RawSplit:
        from PIL import Image

        size, channels = as_size(self.definition.size), self.definition.channels
        pixels: list[Images] = []
        labels: list[int] = []
        for index in tracked(range(len(dataset)), f"reading images of {self.name}"):
            try:
                item = dataset[index]
            except (OSError, SyntaxError, RuntimeError, Image.DecompressionBombError) as error:
                raise DataCorruptError(
                    f"image {index} of data set {self.name!r} cannot be read: {one_line(error)}",
                    where=self.summary,
                    remedy="delete the set's files and fetch it again",
                ) from error
            if not (isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], Image.Image)):
                raise self._unfit("does not give pairs of an image and a label", "choose a classification set")
            image, label = item
            if not isinstance(label, int | np.integer):
                raise self._unfit(
                    f"has labels that are {type(label).__name__}, not int",
                    "choose a set, or arguments, with int labels",
                )
            if channels is None:
                channels = 1 if image.mode in ("1", "L") or image.mode.startswith("I;16") else 3
            try:
                pixels.append(as_pixels(image, channels, size))
            except (OSError, SyntaxError, ValueError) as error:
                raise self._unfit(f"has an unusable image {index}: {one_line(error)}", "leave it out") from error
            if pixels[-1].shape != pixels[0].shape:
                raise self._unfit(
                    f"has images of different sizes: {pixels[0].shape[1:]} first, image {index} {pixels[-1].shape[1:]}",
                    f"give [datasets.{self.name}] size = [HEIGHT, WIDTH]",
                )
            labels.append(int(label))
        if not pixels:
            raise self._unfit("has no images", "check its arguments")
        return RawSplit(np.stack(pixels), self._checked(np.asarray(labels, dtype=np.int64)))

    def _checked(self, labels: Labels) -> Labels:
        if labels.min() < 0:
            raise self._unfit(
                f"has negative labels ({labels.min()})", "choose a split in which every image is labelled"
            )
        return labels

    def _unfit(self, what: str, remedy: str, where: Path | None = None) -> DataError:
        place = str(where) if where else self.summary
        return DataError(f"data set {self.name!r} {what}", where=place, remedy=remedy)
