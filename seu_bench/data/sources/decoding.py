"""Files of images decoded by several threads: into memory, or into one file from which batches are read."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from seu_bench.data.dataset import DatasetInfo, Images, Labels, RawDataset, RawSplit
from seu_bench.data.image_file import ImageFile
from seu_bench.errors import DataError
from seu_bench.utils.files import PART, make_folder, write_atomic
from seu_bench.utils.locks import alone_in
from seu_bench.utils.progress import tracked

#: Folder of decoded images below the data root.
DECODED: Final = "decoded"
#: Seconds for which a process waits for another one that decodes the same images.
PATIENCE: Final = 24 * 3600.0

Decode: TypeAlias = Callable[[Path], Images]
Split: TypeAlias = tuple[Sequence[Path], Labels]


def decoded_in_order(paths: Sequence[Path], decode: Decode, name: str) -> Iterator[Images]:
    """Decode files by several threads, of which Pillow lets all run; results are in order, and few wait.

    Args:
        paths: of the files.
        decode: a file's pixels ``[C, H, W]``; what it raises is raised in the order of the files.
        name: of the data set, for the bar.
    """
    workers = max(1, min(8, os.cpu_count() or 1))
    pending: deque[Future[Images]] = deque()
    bar = iter(tracked(paths, f"reading images of {name}"))
    with ThreadPoolExecutor(workers, "decode images") as pool:
        try:
            for path in bar:
                pending.append(pool.submit(decode, path))
                if len(pending) > 4 * workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


def in_memory(info: DatasetInfo, train: Split, test: Split, decode: Decode) -> RawDataset:
    """Decode all images into memory."""
    splits = []
    for paths, labels in (train, test):
        pixels: Images = np.empty((len(paths), info.channels, info.height, info.width), dtype=np.uint8)
        for index, image in enumerate(decoded_in_order(paths, decode, info.name)):
            pixels[index] = image
        splits.append(RawSplit(pixels, labels))
    train_split, test_split = splits
    return RawDataset(info, train_split, test_split)


def in_file(info: DatasetInfo, train: Split, test: Split, decode: Decode, root: Path) -> RawDataset:
    """Decode all images into a file below the data root, or find them there; processes that need the same one wait.

    The file is another one wherever a file of the data set has another name, class, size or time of change, or Pillow
    another version. Beside it lie the checksums of the set, so that it need not be read as a whole at each start.

    Args:
        info: of the data set.
        train, test: files and labels ``[N]``.
        decode: a file's pixels ``[C, H, W]``.
        root: folder of data sets.

    Raises:
        DataError: the file cannot be written, e.g. because the disk is full.
    """
    shape = (info.channels, info.height, info.width)
    size = (len(train[0]) + len(test[0])) * math.prod(shape)
    file = root / DECODED / f"{info.name}-{_key(shape, train, test)}.pixels"
    described = file.with_suffix(".json")
    images = ImageFile(file, 0, len(train[0]), shape), ImageFile(file, len(train[0]), len(test[0]), shape)
    data = RawDataset(info, RawSplit(images[0], train[1]), RawSplit(images[1], test[1]))
    try:
        known = _known(file, described, size)
        if known is None:
            make_folder(file.parent)
            with alone_in(file.with_suffix(".lock"), PATIENCE):
                known = _known(file, described, size)  # another process may have been quicker
                if known is None:
                    _write(file, decoded_in_order([*train[0], *test[0]], decode, info.name))
                    known = data.checksum(), data.without_test().checksum()
                    write_atomic(described, json.dumps({"checksums": known}) + "\n")
    except OSError as error:
        raise DataError(
            f"decoded images of data set {info.name!r} cannot be kept on disk: {error.strerror or error}",
            where=str(file),
            remedy=f"{size / 1e9:.1f} GB are needed there; "
            "free them, give another --data-root, or set cache = 'memory'",
        ) from error
    return RawDataset(info, data.train, data.test, known)


def _key(shape: tuple[int, int, int], *splits: Split) -> str:
    import PIL

    digest = hashlib.sha256(f"{PIL.__version__} {shape}".encode())
    for paths, labels in splits:
        digest.update(f"\n{len(paths)}\n".encode())
        digest.update(labels.tobytes())  # the checksums that lie beside the images have them within
        for path in paths:
            now = path.stat()
            digest.update(f"{path}\0{now.st_size}\0{now.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def _known(file: Path, described: Path, size: int) -> tuple[str, str] | None:
    """The checksums of a file of decoded images that is whole; ``None``: there is none."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        if file.stat().st_size == size:
            whole, training = json.loads(described.read_text())["checksums"]
            return str(whole), str(training)
    return None


def _write(file: Path, images: Iterator[Images]) -> None:
    part = file.with_name(f".{file.name}{PART}")
    try:
        with part.open("wb") as opened:
            for several in iter(lambda: list(itertools.islice(images, 64)), []):
                opened.writelines(np.ascontiguousarray(image).data for image in several)
            opened.flush()
            os.fsync(opened.fileno())
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
