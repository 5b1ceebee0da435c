"""Data of the user's own: folders of images, decoded by several threads into memory or into a file; ``.npz`` files."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
import stat
import warnings
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from seu_bench.config.streams import InputKind
from seu_bench.data.dataset import (
    DatasetInfo,
    DatasetState,
    Images,
    Labels,
    RawDataset,
    RawSplit,
    as_8_bit,
    channels_first,
    count_labels,
    default_data_root,
    describe_dataset,
    hold_out,
    one_line,
    require_memory,
)
from seu_bench.errors import DataCorruptError, DataError, DataMissingError
from seu_bench.utils.files import PART, make_folder
from seu_bench.utils.hardware import free_host_memory
from seu_bench.utils.locks import folder_lock
from seu_bench.utils.progress import track
from seu_bench.utils.reading import open_file
from seu_bench.utils.text import some

#: Formats of images, which are recognised by content. Pillow knows others, some of which start programs to read them.
IMAGE_FORMATS: Final = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TGA", "TIFF", "WEBP")
#: Endings of image files; by others, such as Thumbs.db and desktop.ini, files are left out, as torchvision does.
IMAGE_ENDINGS: Final = (
    ".apng", ".bmp", ".dib", ".gif", ".j2k", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg", ".jpx", ".pbm", ".pgm", ".png",
    ".pnm", ".ppm", ".tga", ".tif", ".tiff", ".webp",
)  # fmt: skip
#: What folders of splits are called, which are no classes.
SPLIT_NAMES: Final = frozenset({"train", "training", "test", "testing", "val", "valid", "validation"})
#: Changed whenever images are decoded in another way, so that no earlier cache is taken for a present one.
_VERSION = 2

Decode: TypeAlias = Callable[[Any], Images]
#: Image files and their labels ``[N]``.
Split: TypeAlias = tuple[Sequence[Path], Labels]


class OwnFiles(ABC):
    """A file or a folder of the user's own, by its table in a benchmark file, with an absolute path."""

    def __init__(self, definition: Any, name: str) -> None:
        self.definition, self.name = definition, name
        self.path: Path = definition.path
        self.summary = str(self.path)

    @abstractmethod
    def info(self, root: Path | None) -> DatasetInfo:
        """Shape and sizes."""

    def state(self, root: Path | None) -> DatasetState:
        """Whether the set can be described, and so used as far as that can be told."""
        try:
            self.info(root)
        except DataMissingError:
            return DatasetState("missing", self.path)
        except DataError as error:
            return DatasetState("corrupt", self.path, None, error.what)
        return DatasetState("complete", self.path)

    def fetch(self, root: Path) -> None:
        """Refuse."""
        raise self.fault("is your own and cannot be downloaded", "put the files there by hand")

    def checksum(self) -> str:
        """SHA-256 of the file, or of the sorted relative paths and sizes of a folder's images; nothing is decoded."""
        self.check_exists()
        if self.path.is_file():
            with self.path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        images = self.images(self.path)
        lines = (f"{file.relative_to(self.path).as_posix()}\0{file.stat().st_size}\n" for file in images)
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def check_exists(self) -> None:
        """Raise the error of a path that does not exist or cannot be looked at."""
        try:
            self.path.stat()
        except FileNotFoundError:
            remedy = "correct its 'path' in the benchmark file (relative to that file), or put the data there"
            raise self.fault("is missing", remedy, DataMissingError) from None
        except (OSError, ValueError) as error:
            raise self.unreadable(error) from error

    def images(self, folder: Path) -> list[Path]:
        """Those of its files whose names end like an image's."""
        return [file for file in self.files(folder) if file.suffix.lower() in IMAGE_ENDINGS]

    def files(self, folder: Path) -> list[Path]:
        """All files below a folder, sorted by relative path; hidden ones are passed over.

        torchvision's ``make_dataset`` sorts nested folders otherwise, and follows hidden ones: other held-out images.
        """
        found: list[Path] = []
        seen: set[tuple[int, int]] = set()
        try:
            for parent, folders, names in os.walk(folder, onerror=_raise, followlinks=True):
                here = Path(parent)
                place = here.stat().st_dev, here.stat().st_ino
                if place in seen:
                    raise self.fault("has a folder twice, by a link", "remove the link", where=here)
                seen.add(place)
                folders[:] = [name for name in folders if not name.startswith(".")]
                for file in (here / name for name in names if not name.startswith(".")):
                    if not stat.S_ISREG(file.stat().st_mode):
                        raise self.fault("has something that is neither file nor folder", "remove it", where=file)
                    found.append(file)
        except (OSError, ValueError) as error:
            raise self.unreadable(error) from error
        return sorted(found, key=lambda file: file.relative_to(folder).as_posix())

    def unreadable(self, error: OSError | ValueError) -> DataError:
        """The error of a file or a folder that cannot be read."""
        where, reason = getattr(error, "filename", None) or self.path, getattr(error, "strerror", None) or error
        return self.fault(f"cannot be read: {reason}", "see that you may read it, or remove it", where=where)

    def fault(
        self, what: str, remedy: str, kind: type[DataError] = DataError, where: Path | str | None = None
    ) -> DataError:
        """An error of the set, or of the file ``where`` in it."""
        return kind(f"data set {self.name!r} {what}", where=str(where or self.path), remedy=remedy)


def _raise(error: OSError) -> None:
    raise error


class FolderSource(OwnFiles):
    """A folder with one folder of images per class, or with two such folders called ``train`` and ``test``.

    Classes are the sorted names of their folders. Files whose names do not end like an image's are left out.
    """

    def info(self, root: Path | None) -> DatasetInfo:
        """Shape and sizes; files are counted, not opened."""
        return self.splits()[0]

    def load(self, root: Path | None) -> RawDataset:
        """Decode, convert and resize every image, or find them decoded on disk where the definition says so."""
        info, train, test = self.splits()
        if left_out := self._left_out():
            what = f"data set {self.name!r} leaves out {len(left_out):,} files that do not end like images"
            warnings.warn(f"{what}: {some(left_out)}", stacklevel=2)

        decode = partial(as_pixels, channels=info.channels, size=(info.height, info.width))
        if self.definition.cache == "disk":
            return in_file(info, train, test, decode, default_data_root(root), self._place())
        return in_memory(info, train, test, decode)

    def _place(self) -> str:
        return f"{self.path} {self.definition.test_fraction}"

    def _left_out(self) -> list[str]:
        others = [file for file in self.files(self.path) if file.suffix.lower() not in IMAGE_ENDINGS]
        return [str(file.relative_to(self.path)) for file in others if file.parent != self.path]

    def splits(self) -> tuple[DatasetInfo, Split, Split]:
        """Shape and sizes, and the files and labels that train and that test; files are counted, not opened."""
        self.check_exists()
        folders = [self.path / "train", self.path / "test"]
        try:
            if all(folder.is_dir() for folder in folders):
                (names, train), (others, test) = map(self._classes, folders)
                if other := sorted({*names} ^ {*others}):
                    what = f"has other classes in train than in test ({', '.join(other)} in one only)"
                    raise self.fault(what, "give both the same class folders")
            else:
                names, (paths, labels) = self._classes(self.path)
                held = hold_out(labels, self.definition.test_fraction, self.name, str(self.path), names)
                train, test = (([paths[row] for row in rows], labels[rows]) for rows in held)
        except OSError as error:
            raise self.unreadable(error) from error
        return self._describe(names, train[1], test[1]), train, test

    def _describe(self, names: Sequence[str], train: Labels, test: Labels) -> DatasetInfo:
        size, channels = self.definition.size, self.definition.channels
        height, width = (size, size) if isinstance(size, int) else size
        blank = DatasetInfo(self.name, channels, height, width, len(names), 0, 0, class_names=tuple(names))
        return count_labels(blank, train, test)

    def _classes(self, folder: Path) -> tuple[list[str], Split]:
        """Names of the classes in ``folder``, and their image files."""
        if not folder.is_dir():
            raise self.fault("is a file, not a folder of class folders", "name the folder, or use kind = 'npz'")
        names = sorted(each.name for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))
        files = [self.images(folder / name) for name in names]
        fill = "make one folder of images (.png, .jpg, ...) per class"
        filled = [members for members in files if members]
        is_deep = len(filled) == 1 and all(it.parent.parent != folder for it in filled[0])
        if not filled or is_deep:
            raise self.fault(f"has no images, or all of them in folders of one class folder, below {folder}", fill)
        if empty := ", ".join(name for name, members in zip(names, files, strict=True) if not members):
            raise self.fault(f"has class folders without images in {folder}: {empty}", f"{fill}, or delete them")
        if {name.casefold() for name in names} <= SPLIT_NAMES:
            what = f"has folders in the place of classes in {folder} that are called like splits: {', '.join(names)}"
            raise self.fault(what, "call the folders of the splits train and test; there is no third one")
        labels = np.repeat(np.arange(len(names), dtype=np.int64), [len(members) for members in files])
        return names, ([path for members in files for path in members], labels)


def as_pixels(image: Any, channels: int, size: tuple[int, int] | None) -> Images:
    """A file, or an unread PIL image, as 8-bit pixels ``[C, H, W]``, grey or coloured; transparency is dropped.

    It is resized (bilinear) to a height and width where there is a ``size``. A ValueError says that it has more than 8
    bits per channel; an OSError or SyntaxError that its file is corrupt.
    """
    from PIL import Image

    if isinstance(image, Path):
        with Image.open(image, formats=IMAGE_FORMATS) as opened:
            return as_pixels(opened, channels, size)
    # Of channels with 16 bits Pillow reads the upper 8, without a word.
    is_wide = any(re.search(r";16[BLN]", str(tile.args)) for tile in getattr(image, "tile", ()))
    if is_wide or image.mode.startswith(("I", "F")):
        found = "" if len(image.getbands()) > 1 else "from {} to {}, ".format(*image.getextrema())
        what = f"its pixels have more than 8 bits ({found}mode {image.mode})"
        raise ValueError(f"{what}: scale all images by one range, and save them with 8 bits")
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    image = image.convert("L" if channels == 1 else "RGB")
    if size is not None and (image.height, image.width) != size:
        image = image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    pixels = np.asarray(image, dtype=np.uint8)
    return pixels[None] if channels == 1 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def attempted(items: Iterable[Any], decode: Decode, threads: int = 8) -> Iterator[Images | Exception]:
    """What each item is decoded to, or why not, in order; by several threads, of which Pillow lets all run."""
    from PIL.Image import DecompressionBombError

    def attempt(item: Any) -> Images | Exception:
        try:
            return decode(item)
        except (OSError, SyntaxError, ValueError, EOFError, DecompressionBombError) as error:
            return error

    with ThreadPoolExecutor(max(1, min(threads, os.cpu_count() or 1)), "decode images") as pool:
        ahead: deque[Future[Images | Exception]] = deque()
        for item in items:
            ahead.append(pool.submit(attempt, item))
            if len(ahead) > 64:  # images that wait
                yield ahead.popleft().result()
        yield from (it.result() for it in ahead)


def refuse_faults(faults: Sequence[tuple[Any, Exception]], told: str) -> None:
    """Raise a DataCorruptError that names items that were not decoded, if there are any, and why."""
    if faults:
        listed = [f"\n  - {item}: {one_line(error)}" for item, error in faults[:20]]
        listed += [f"\n  - and {len(faults) - 20:,} more"] * (len(faults) > 20)
        raise DataCorruptError(f"{told}:{''.join(listed)}", remedy="repair, convert or remove them")


def decoded_in_order(items: Sequence[Any], decode: Decode, name: str, threads: int = 8) -> Iterator[Images]:
    """Decode images, files or numbers; a DataCorruptError at the end names those that are no usable images."""
    faults: list[tuple[Any, Exception]] = []
    results = track(attempted(items, decode, threads), f"reading images of {name}", len(items))
    for item, result in zip(items, results, strict=True):
        if isinstance(result, Exception):
            faults.append((item if isinstance(item, Path) else f"image {item}", result))
        elif not faults:
            yield result
    refuse_faults(faults, f"data set {name!r} has files that are no usable images, {len(faults):,} in all")


def in_memory(info: DatasetInfo, train: Split, test: Split, decode: Decode) -> RawDataset:
    """Decode all images into memory."""
    paths = [*train[0], *test[0]]
    shape = (info.channels, info.height, info.width)
    require_memory(info.name, len(paths), shape)
    pixels: Images = np.empty((len(paths), *shape), dtype=np.uint8)
    for index, image in enumerate(decoded_in_order(paths, decode, info.name)):
        pixels[index] = image
    return _data_set(info, pixels, train, test)


def in_file(info: DatasetInfo, train: Split, test: Split, decode: Decode, root: Path, place: str) -> RawDataset:
    """Decode all images into a file below the data root, or find them there; processes that need the same one wait.

    The file is another one wherever a file of the data set has another name, class, size or time of change, or Pillow
    another version. At its end stands the checksum of the set; the file is read as a whole at each start, and what is
    not as it was written is decoded anew. Files of earlier states of the same folder are removed when one is made.

    ``place`` tells this data set from others of its name. A DataError says why the file cannot be written.
    """
    shape = (info.channels, info.height, info.width)
    require_memory(info.name, 4 * (os.cpu_count() or 1), shape)  # decoded ones that wait
    folder = root / "decoded" / f"{info.name}-{hashlib.sha256(f'{place} {shape}'.encode()).hexdigest()[:8]}"
    file = folder / f"{_key(shape, train, test)}.pixels"
    part = file.with_name(f".{file.name}{PART}")
    whole = len(train[0]) + len(test[0]), *shape

    def stored() -> RawDataset | None:
        """The data set in the file, read once; ``None``: there is none, or it is not as it was written."""
        with contextlib.suppress(OSError), open_file(file) as opened:
            if opened.seek(0, os.SEEK_END) == math.prod(whole) + 64:
                data = _data_set(info, np.memmap(file, np.uint8, "r", shape=whole), train, test)
                known = data.read_checksums()
                opened.seek(math.prod(whole))
                if opened.read() == known[0].encode():
                    return replace(data, known_checksums=known)
        return None

    try:
        if (data := stored()) is not None:
            return data
        make_folder(folder.parent)
        with folder_lock(folder, wait=24 * 3600.0):
            if (data := stored()) is not None:  # another process was quicker
                return data
            if file.exists():
                warnings.warn(f"{file} is not as it was written: its images are decoded anew", stacklevel=2)
            try:
                with part.open("wb") as opened:
                    for image in decoded_in_order([*train[0], *test[0]], decode, info.name):
                        opened.write(np.ascontiguousarray(image).data)
                    opened.flush()
                    pixels = np.memmap(part, np.uint8, "r", shape=whole)
                    opened.write(_data_set(info, pixels, train, test).checksum().encode())
                    opened.flush()
                    os.fsync(opened.fileno())
                part.replace(file)
            finally:
                part.unlink(missing_ok=True)
            for path in file.parent.glob("*.pixels"):
                if path != file:  # a process that reads it has it open, and goes on reading
                    path.unlink(missing_ok=True)
            if (data := stored()) is None:
                raise OSError("what was written cannot be read again")
            return data
    except OSError as error:
        what = f"decoded images of data set {info.name!r} cannot be kept on disk: {error.strerror or error}"
        remedy = "free {:.1f} GB there, give another --data-root, or set cache = 'memory'"
        raise DataError(what, where=str(file), remedy=remedy.format(math.prod(whole) / 1e9)) from error


def _data_set(info: DatasetInfo, pixels: Images, train: Split, test: Split) -> RawDataset:
    count = len(train[0])
    return RawDataset(info, RawSplit(pixels[:count], train[1]), RawSplit(pixels[count:], test[1]))


def _key(shape: tuple[int, int, int], *splits: Split) -> str:
    import PIL

    digest = hashlib.sha256(f"{_VERSION} {PIL.__version__} {shape}".encode())
    for paths, labels in splits:
        digest.update(f"\n{len(paths)}\n".encode())
        digest.update(labels.tobytes())  # the checksum at the file's end has them within
        for path in paths:
            now = path.stat()
            digest.update(f"{path}\0{now.st_size}\0{now.st_mtime_ns}\0{now.st_ctime_ns}\n".encode())
    return digest.hexdigest()[:16]


#: The arrays that an ``.npz`` with a test set must have.
_SPLIT = ("x_train", "y_train", "x_test", "y_test")


class NpzSource(OwnFiles):
    """An ``.npz`` with ``images`` and ``labels``, or with ``x_train``, ``y_train``, ``x_test`` and ``y_test``.

    Images are what :func:`~seu_bench.data.dataset.as_8_bit` takes, labels integers from 0, where an array
    ``class_names`` of texts is optional, or the names of the classes.
    """

    kind: InputKind = "image"
    #: The arrays that one without a test set must have.
    whole = ("images", "labels")

    def info(self, root: Path | None) -> DatasetInfo:
        """Shape and sizes; the set is loaded for them."""
        return self.load(root).info

    def load(self, root: Path | None) -> RawDataset:
        """Read and check the arrays."""
        self.check_exists()
        try:
            return self.describe(self.arrays())
        except (
            *(OSError, ValueError, EOFError, KeyError, RuntimeError, NotImplementedError, MemoryError),
            *(zipfile.BadZipFile, zlib.error),
        ) as error:
            remedy = f"docs/guides/own_data.md says what the {self.path.suffix or 'file'} must hold"
            if "allow_pickle" in str(error):  # reading Python objects would run code of the file
                remedy = "save it by numpy.savez, texts with .astype(str) and numbers with .astype(float)"
            raise self.fault(f"is not usable: {one_line(error)}", remedy, DataCorruptError) from error

    def describe(self, arrays: dict[str, NDArray[Any]]) -> RawDataset:
        """The data set that these arrays are; a ValueError or a DataError says which of them does not fit."""
        keys = _SPLIT if "x_train" in arrays else self.whole
        if arrays[keys[1]].dtype.kind in "US":
            _number_names(arrays, keys[1::2])
        splits = []
        for x, y in zip(keys[::2], keys[1::2], strict=True):
            samples = self.samples(x, arrays[x])
            splits.append(RawSplit(samples, _npz_labels(x, samples, arrays[y])))
        if unknown := np.setdiff1d(splits[-1].labels, splits[0].labels).tolist():
            raise ValueError(f"y_test has labels that y_train has not: {unknown}")
        if least := int(splits[0].labels.min()):
            raise ValueError(f"labels begin at {least}, and must begin at 0: subtract {least}")
        names, classes = arrays.get("class_names"), 1 + int(splits[0].labels.max())
        if names is not None and (names.dtype.kind != "U" or names.ndim != 1 or len(names) < classes):
            raise ValueError(f"class_names must be texts, one for each of the classes 0 to {classes - 1}")
        called = None if names is None else names.tolist()
        about = (str(self.path), called, self.kind, self.vocabulary(splits))
        return describe_dataset(self.name, splits, self.definition.test_fraction, *about)

    def samples(self, name: str, values: NDArray[Any]) -> NDArray[Any]:
        """Check samples and bring them to the type and shape of a :class:`RawSplit`; a ValueError names the array."""
        try:
            return _npz_images(values)
        except ValueError as error:
            is_table = values.ndim == 2 and values.dtype.kind in "uif"
            hint = "; tables of numbers are kind = 'features'" if is_table else ""
            raise ValueError(f"{name} {error}{hint}") from error

    def vocabulary(self, splits: Sequence[RawSplit]) -> int | None:
        """Size of the vocabulary of tokens."""
        return None

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Read the arrays of the file by their names."""
        with open_file(self.path.resolve()) as opened:
            file = np.load(opened, allow_pickle=False)
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise ValueError(f"it holds a single array; use numpy.savez(path, {self.whole[0]}=..., labels=...)")
            keys = _SPLIT if "x_train" in file else self.whole
            if missing := ", ".join(key for key in keys if key not in file):
                found = ", ".join(file.files) or "nothing"
                give = f"{', '.join(self.whole)} or {', '.join(_SPLIT)}"
                raise ValueError(f"{missing} missing; it has {found}; give {give}")
            size, free = sum(member.file_size for member in zipfile.ZipFile(opened).infolist()), free_host_memory()
            if size > free:
                raise ValueError(f"its arrays take {size:,} bytes of memory, and {free:,} are free")
            return {key: file[key] for key in (*keys, "class_names") if key in file}


def _number_names(arrays: dict[str, NDArray[Any]], keys: Sequence[str]) -> None:
    """Replace labels that are texts by numbers of the training split's sorted texts, which are the class names."""
    if "class_names" in arrays:
        raise ValueError("labels that are texts name the classes: leave class_names out")
    names = arrays["class_names"] = np.unique(arrays[keys[0]].astype(str))
    if "" in names:
        raise ValueError(f"{keys[0]} has an empty text for a label")
    for key in keys:
        texts = arrays[key].astype(str)
        if unknown := np.setdiff1d(texts, names).tolist():
            raise ValueError(f"{key} has labels that {keys[0]} has not: {unknown}")
        arrays[key] = np.searchsorted(names, texts)


def _npz_images(images: NDArray[Any]) -> Images:
    images = as_8_bit(images)
    shape = images.shape
    if images.ndim not in (3, 4) or not all(shape):
        raise ValueError(f"has shape {shape}; needed are images [N, H, W], [N, H, W, C] or [N, C, H, W]")
    if images.ndim == 4:
        first, last = shape[1] in (1, 3), shape[3] in (1, 3)
        if first == last and (first or shape[1] >= shape[3]):
            raise ValueError(f"has shape {shape}: which axis has the 1 or 3 channels cannot be told")
    return channels_first(images)


def _npz_labels(name: str, samples: NDArray[Any], labels: NDArray[Any]) -> Labels:
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.shape != samples.shape[:1] or labels.dtype.kind not in "ui" or not len(labels):
        what = f"the labels of {name} are {labels.dtype} of shape {labels.shape}"
        raise ValueError(f"{what}; needed are {samples.shape[:1]} integers, or texts, and one at least")
    if labels.min() < 0 or labels.max() >= max(1000, len(labels)):
        raise ValueError(f"{name} has labels {labels.min()} to {labels.max()}; they must count the classes from 0")
    return labels.astype(np.int64)
