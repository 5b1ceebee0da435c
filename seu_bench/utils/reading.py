"""Reading of files and folders that others may have made, so that nothing is passed over and nothing is waited for.

Below a results folder only regular files are read, and no link is followed: one that a stranger made could lead to a
device without an end, or to a pipe that nobody writes to.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import Final

from seu_bench.errors import ResultsError
from seu_bench.utils.files import KINDS
from seu_bench.utils.hardware import free_host_memory

#: Bytes for which there is always memory.
_SMALL: Final = 2**24
#: Bytes of the longest header that safetensors reads.
_LONGEST_HEADER: Final = 100_000_000


def open_file(path: Path) -> BufferedReader:
    """Open a regular file for reading, without following a link and without waiting.

    Raises:
        OSError: it cannot be opened, or is something else; ``strerror`` says what.
    """
    # A pipe would wait for a writer; a device may act on being opened. What is opened is checked once more.
    _check_regular(path, path.lstat())
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    file = os.fdopen(os.open(path, flags), "rb")
    try:
        _check_regular(path, os.fstat(file.fileno()))
    except BaseException:
        file.close()
        raise
    return file


def absolute(path: str | Path) -> Path:
    """Return a path that does not depend on the working folder; links in it stay."""
    return Path(os.path.abspath(Path(path).expanduser()))  # noqa: PTH100


def read_file(path: Path, largest: int | None = None) -> bytes:
    """Read all of a regular file, as :func:`open_file` does.

    Args:
        path: the file.
        largest: bytes that it may have.

    Raises:
        OSError: it cannot be read, is no regular file, or is larger.
    """
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if largest is not None and size > largest:
            raise OSError(errno.EFBIG, f"it has {size} bytes, and {largest} are the most that it may have", str(path))
        if size > _SMALL and size > free_host_memory():
            raise OSError(errno.ENOMEM, f"there is no memory for its {size} bytes", str(path))
        return file.read(size if largest is None else largest)


def announced_bytes(path: Path) -> int:
    """Bytes that a file of safetensors has by its own header, so that one without an end is not read to it; 0: none.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    with open_file(path) as file:
        length = int.from_bytes(file.read(8), "little")
        text = file.read(length) if length <= _LONGEST_HEADER else b""
    try:
        offsets = [entry["data_offsets"] for name, entry in json.loads(text).items() if name != "__metadata__"]
        return 8 + length + max((int(end) for _, end in offsets), default=0)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return 0


def list_folder(folder: Path) -> list[Path]:
    """List a folder by name; one that does not exist is empty.

    Raises:
        ResultsError: it cannot be read, or is no folder.
    """
    try:
        return sorted(folder.iterdir(), key=lambda path: path.name)
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise cannot_read(folder, error) from error


def cannot_read(path: Path, error: OSError | ValueError) -> ResultsError:
    """The error that says why ``path`` cannot be read."""
    return ResultsError(
        f"cannot be read: {getattr(error, 'strerror', None) or error}",
        where=str(path),
        remedy="see that it is there and that you may read it, or give another folder with --results",
    )


def _check_regular(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = KINDS.get(stat.S_IFMT(found.st_mode), "something else")
        raise OSError(errno.EINVAL, f"this is {kind}, not a regular file", str(path))
