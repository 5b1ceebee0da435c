"""Files of images decoded by several threads: into memory, or into one file from which batches are read."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import math
import os
import re
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

import numpy as np

from seu_bench.data.dataset import DatasetInfo, Images, Labels, RawDataset, RawSplit
from seu_bench.data.image_file import ImageFile
from seu_bench.data.sources.common import one_line, require_memory
from seu_bench.errors import DataCorruptError, DataError
from seu_bench.utils.files import PART, make_folder
from seu_bench.utils.locks import folder_lock
from seu_bench.utils.progress import tracked
from seu_bench.utils.reading import open_file

#: Folder of decoded images below the data root.
DECODED: Final = "decoded"
#: Seconds for which a process waits for another one that decodes the same images.
PATIENCE: Final = 24 * 3600.0
#: Ending of files of decoded images.
_ENDING: Final = ".pixels"
#: Bytes of the checksum at the end of such a file.
_CHECKSUM_BYTES: Final = 64

#: Changed whenever images are decoded in another way, so that no earlier cache is taken for a present one.
_VERSION: Final = 2
#: Files of which a message gives the names.
NAMED: Final = 20

Result = TypeVar("Result")
Decode: TypeAlias = Callable[[Path], Images]
Split: TypeAlias = tuple[Sequence[Path], Labels]


def image_errors() -> tuple[type[Exception], ...]:
    """What Pillow and :func:`~seu_bench.data.sources.common.as_pixels` raise of a file that is no usable image."""
    from PIL import Image

    return (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError)


def decoded_in_order(paths: Sequence[Path], decode: Callable[[Path], Result], name: str) -> Iterator[Result]:
    """Decode files by several threads, of which Pillow lets all run; results are in order, and few wait.

    Args:
        paths: of the files.
        decode: what is made of a file.
        name: of the data set, for the bar.

    Raises:
        DataCorruptError: files are no usable images; it comes at the end, and names them all.
    """
    workers = max(1, min(8, os.cpu_count() or 1))
    pending: deque[tuple[Path, Future[Result]]] = deque()
    faults: list[tuple[Path, Exception]] = []
    faulty = image_errors()

    def results(most: int) -> Iterator[Result]:
        while len(pending) > most:
            path, future = pending.popleft()
            try:
                result = future.result()
            except faulty as error:
                faults.append((path, error))
            else:
                if not faults:
                    yield result

    with ThreadPoolExecutor(workers, "decode images") as pool:
        try:
            for path in tracked(paths, f"reading images of {name}"):
                pending.append((path, pool.submit(decode, path)))
                yield from results(4 * workers)
            yield from results(0)
        finally:
            for _, future in pending:
                future.cancel()
    if faults:
        raise _faulty_files(name, faults)


def _faulty_files(name: str, faults: Sequence[tuple[Path, Exception]]) -> DataCorruptError:
    """The error that names all files of a data set that are no usable images."""
    (first, error), count = faults[0], len(faults)
    if count == 1:
        what = f"a file that is no usable image: {one_line(error)}"
    else:
        lines = [f"  - {path}: {one_line(error)}" for path, error in faults[:NAMED]]
        lines += [f"  - and {count - NAMED:,} more"] if count > NAMED else []
        what = "\n".join([f"{count:,} files that are no usable images", *lines])
    remedy = "repair, convert or remove " + ("it" if count == 1 else "them")
    return DataCorruptError(f"data set {name!r} has {what}", where=str(first), remedy=remedy)


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


def in_file(
    info: DatasetInfo, train: Split, test: Split, decoder: Callable[[], Decode], root: Path, place: str
) -> RawDataset:
    """Decode all images into a file below the data root, or find them there; processes that need the same one wait.

    The file is another one wherever a file of the data set has another name, class, size or time of change, or Pillow
    another version. At its end stands the checksum of the set; the file is read as a whole at each start, and what is
    not as it was written is decoded anew. Files of earlier states of the same folder are removed when one is made.

    Args:
        info: of the data set.
        train, test: files and labels ``[N]``.
        decoder: makes what gives a file's pixels ``[C, H, W]``; called if they have to be decoded.
        root: folder of data sets.
        place: what tells this data set from others of its name, e.g. its folder.

    Raises:
        DataError: the file cannot be written, e.g. because the disk is full.
    """
    shape = (info.channels, info.height, info.width)
    require_memory(info.name, 4 * (os.cpu_count() or 1), shape)  # decoded ones that wait
    folder = root / DECODED / f"{info.name}-{_hex(f'{place} {shape}'.encode())[:8]}"
    file = folder / f"{_key(shape, train, test)}{_ENDING}"

    def stored(path: Path) -> RawDataset:
        images = ImageFile(path, 0, len(train[0]), shape), ImageFile(path, len(train[0]), len(test[0]), shape)
        return RawDataset(info, RawSplit(images[0], train[1]), RawSplit(images[1], test[1]))

    try:
        data = _verified(file, stored)
        if data is None:
            make_folder(folder.parent)
            with folder_lock(folder, PATIENCE):
                data = _verified(file, stored)  # another process may have been quicker
                if data is None:
                    if file.exists():
                        warnings.warn(f"{file} is not as it was written: its images are decoded anew", stacklevel=2)
                    _write(file, decoded_in_order([*train[0], *test[0]], decoder(), info.name), stored)
                    _remove_earlier(file, info.name)
                    data = _verified(file, stored)
                    if data is None:
                        raise OSError(errno.EIO, "what was written cannot be read again")
    except OSError as error:
        size = (len(train[0]) + len(test[0])) * math.prod(shape)
        raise DataError(
            f"decoded images of data set {info.name!r} cannot be kept on disk: {error.strerror or error}",
            where=str(file),
            remedy=f"{size / 1e9:.1f} GB are needed there; "
            "free them, give another --data-root, or set cache = 'memory'",
        ) from error
    return data


def _hex(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


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


def _verified(file: Path, stored: Callable[[Path], RawDataset]) -> RawDataset | None:
    """The data set in a file of decoded images, read once as a whole; ``None``: there is none, or not as written."""
    data = stored(file)
    size = sum(math.prod(split.images.shape) for split in (data.train, data.test))
    with contextlib.suppress(OSError, DataCorruptError), open_file(file) as opened:
        if opened.seek(0, os.SEEK_END) == size + _CHECKSUM_BYTES:
            opened.seek(size)
            known = data.read_checksums()
            if opened.read() == known[0].encode():
                return replace(data, known_checksums=known)
    return None


def _write(file: Path, images: Iterator[Images], stored: Callable[[Path], RawDataset]) -> None:
    part = file.with_name(f".{file.name}{PART}")
    try:
        with part.open("wb") as opened:
            for several in iter(lambda: list(itertools.islice(images, 64)), []):
                opened.writelines(np.ascontiguousarray(image).data for image in several)
            opened.flush()
            opened.write(stored(part).checksum().encode())
            opened.flush()
            os.fsync(opened.fileno())
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def _remove_earlier(file: Path, name: str) -> None:
    """Remove decoded images of earlier states of a folder, and those that earlier versions kept by this name.

    A process that reads one of them has it open, and goes on reading.
    """
    states = re.compile(rf"[0-9a-f]{{16}}{re.escape(_ENDING)}")
    former = re.compile(rf"{re.escape(name)}-[0-9a-f]{{16}}\.(pixels|json)")
    for folder, pattern in ((file.parent, states), (file.parent.parent, former)):
        for path in folder.iterdir():
            if pattern.fullmatch(path.name) and path != file:
                with contextlib.suppress(OSError):
                    path.unlink()
