"""Files of images decoded by several threads: into memory, or into one file from which batches are read."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import math
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from seu_bench.data.dataset import DatasetInfo, Images, Labels, RawDataset, RawSplit, one_line, require_memory
from seu_bench.errors import DataCorruptError, DataError
from seu_bench.utils.files import PART, make_folder
from seu_bench.utils.locks import folder_lock
from seu_bench.utils.progress import tracked
from seu_bench.utils.reading import open_file

#: Folder of decoded images below the data root.
DECODED: Final = "decoded"
#: Seconds for which a process waits for another one that decodes the same images.
PATIENCE: Final = 24 * 3600.0
#: Files of which a message gives the names.
NAMED: Final = 20
#: Changed whenever images are decoded in another way, so that no earlier cache is taken for a present one.
_VERSION: Final = 2
#: Bytes of the checksum at the end of a file of decoded images.
_CHECKSUM_BYTES: Final = 64

Decode: TypeAlias = Callable[[Path], Images]
#: Image files and their labels ``[N]``.
Split: TypeAlias = tuple[Sequence[Path], Labels]


def as_pixels(image: Any, channels: int, size: tuple[int, int] | None) -> Images:
    """A PIL image as 8-bit pixels ``[C, H, W]``; transparency is dropped.

    Args:
        image: the image, not loaded yet.
        channels: 1 for grey, 3 for red, green and blue.
        size: height and width to resize to (bilinear); ``None`` keeps the image's own.

    Raises:
        ValueError: it has more than 8 bits per channel.
        OSError, SyntaxError: the image's file is corrupt.
    """
    from PIL import Image

    if image.mode.startswith(("I", "F")) or _has_wide_channels(image):
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


def _has_wide_channels(image: Any) -> bool:
    """Of channels with 16 bits Pillow reads the upper 8, without a word."""
    return any(re.search(r";16[BLN]", str(tile.args)) for tile in getattr(image, "tile", ()))


def decoded_in_order(paths: Sequence[Path], decode: Decode, name: str) -> Iterator[Images]:
    """Decode files by several threads, of which Pillow lets all run; results are in order, and few wait.

    Args:
        paths: of the files.
        decode: what is made of a file.
        name: of the data set, for the bar.

    Raises:
        DataCorruptError: files are no usable images; it comes at the end, and names them all.
    """
    from PIL import Image

    def attempt(path: Path) -> Images | Exception:
        try:
            return decode(path)
        except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
            return error

    faults: list[str] = []
    first = None
    with ThreadPoolExecutor(max(1, min(8, os.cpu_count() or 1)), "decode images") as pool:
        starts = range(0, len(paths), 64)
        results = (result for start in starts for result in pool.map(attempt, paths[start : start + 64]))
        for path, result in zip(paths, tracked(results, f"reading images of {name}", len(paths)), strict=True):
            if isinstance(result, Exception):
                first = first or path
                faults.append(f"  - {path}: {one_line(result)}")
            elif first is None:
                yield result
    if first is not None:
        listed = "\n".join(faults[:NAMED] + ([f"  - and {len(faults) - NAMED:,} more"] if faults[NAMED:] else []))
        what = f"data set {name!r} has files that are no usable images, {len(faults):,} in all:\n{listed}"
        raise DataCorruptError(what, where=str(first), remedy="repair, convert or remove them")


def in_memory(info: DatasetInfo, train: Split, test: Split, decode: Decode) -> RawDataset:
    """Decode all images into memory."""
    paths = [*train[0], *test[0]]
    shape = (info.channels, info.height, info.width)
    require_memory(info.name, len(paths), shape)
    pixels: Images = np.empty((len(paths), *shape), dtype=np.uint8)
    for index, image in enumerate(decoded_in_order(paths, decode, info.name)):
        pixels[index] = image
    count = len(train[0])
    return RawDataset(info, RawSplit(pixels[:count], train[1]), RawSplit(pixels[count:], test[1]))


def in_file(info: DatasetInfo, train: Split, test: Split, decode: Decode, root: Path, place: str) -> RawDataset:
    """Decode all images into a file below the data root, or find them there; processes that need the same one wait.

    The file is another one wherever a file of the data set has another name, class, size or time of change, or Pillow
    another version. At its end stands the checksum of the set; the file is read as a whole at each start, and what is
    not as it was written is decoded anew. Files of earlier states of the same folder are removed when one is made.

    Args:
        info: of the data set.
        train, test: files and labels ``[N]``.
        decode: gives a file's pixels ``[C, H, W]``.
        root: folder of data sets.
        place: what tells this data set from others of its name, e.g. its folder.

    Raises:
        DataError: the file cannot be written, e.g. because the disk is full.
    """
    shape = (info.channels, info.height, info.width)
    require_memory(info.name, 4 * (os.cpu_count() or 1), shape)  # decoded ones that wait
    folder = root / DECODED / f"{info.name}-{hashlib.sha256(f'{place} {shape}'.encode()).hexdigest()[:8]}"
    file = folder / f"{_key(shape, train, test)}.pixels"

    def stored(path: Path) -> RawDataset:
        images = np.memmap(path, np.uint8, "r", shape=(len(train[0]) + len(test[0]), *shape))
        count = len(train[0])
        return RawDataset(info, RawSplit(images[:count], train[1]), RawSplit(images[count:], test[1]))

    size = (len(train[0]) + len(test[0])) * math.prod(shape)
    try:
        data = _verified(file, size, stored)
        if data is None:
            make_folder(folder.parent)
            with folder_lock(folder, PATIENCE):
                data = _verified(file, size, stored)  # another process may have been quicker
                if data is None:
                    if file.exists():
                        warnings.warn(f"{file} is not as it was written: its images are decoded anew", stacklevel=2)
                    _write(file, decoded_in_order([*train[0], *test[0]], decode, info.name), stored)
                    data = _verified(file, size, stored)
                    if data is None:
                        raise OSError(errno.EIO, "what was written cannot be read again")
    except OSError as error:
        raise DataError(
            f"decoded images of data set {info.name!r} cannot be kept on disk: {error.strerror or error}",
            where=str(file),
            remedy=f"{size / 1e9:.1f} GB are needed there; "
            "free them, give another --data-root, or set cache = 'memory'",
        ) from error
    return data


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


def _verified(file: Path, size: int, stored: Callable[[Path], RawDataset]) -> RawDataset | None:
    """The data set in a file of decoded images, read once as a whole; ``None``: there is none, or not as written."""
    with contextlib.suppress(OSError), open_file(file) as opened:
        if opened.seek(0, os.SEEK_END) == size + _CHECKSUM_BYTES:
            opened.seek(size)
            data = stored(file)
            known = data.read_checksums()
            if opened.read() == known[0].encode():
                return replace(data, known_checksums=known)
    return None


def _write(file: Path, images: Iterator[Images], stored: Callable[[Path], RawDataset]) -> None:
    """Write the file completely or not at all, and remove those of earlier states of the same folder.

    A process that reads one of them has it open, and goes on reading.
    """
    part = file.with_name(f".{file.name}{PART}")
    try:
        with part.open("wb") as opened:
            for image in images:
                opened.write(np.ascontiguousarray(image).data)
            opened.flush()
            opened.write(stored(part).checksum().encode())
            opened.flush()
            os.fsync(opened.fileno())
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
    for path in file.parent.glob("*.pixels"):
        if path != file:
            with contextlib.suppress(OSError):
                path.unlink()
