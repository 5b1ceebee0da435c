"""Reading of files and folders that others may have made: nothing is passed over, waited for or followed.

A link that a stranger made could lead to a device without an end, or to a pipe that nobody writes to.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import Final

from seu_bench.errors import ResultsError
from seu_bench.utils.hardware import free_host_memory

#: Bytes for which there is always memory.
_SMALL: Final = 2**24


def open_file(path: Path) -> BufferedReader:
    """Open a regular file for reading, without following a link and without waiting.

    Raises:
        OSError: it cannot be opened, or is something else; ``strerror`` says what.
    """
    # A device may act on being opened. What is opened is checked once more.
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
    return Path(os.path.abspath(os.path.expanduser(path)))  # noqa: PTH100, PTH111  # which raise nothing


def read_file(path: Path, largest: int | None = None) -> bytes:
    """Read all of a regular file, as :func:`open_file` does.

    Raises:
        OSError: it cannot be read, is no regular file, or is larger than ``largest`` bytes or the free memory.
    """
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if largest is not None and size > largest:
            raise OSError(errno.EFBIG, f"it has {size} bytes, and {largest} are the most that it may have", str(path))
        if size > _SMALL and size > free_host_memory():
            raise OSError(errno.ENOMEM, f"there is no memory for its {size} bytes", str(path))
        return file.read(size)


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
    what = f"cannot be read: {getattr(error, 'strerror', None) or error}"
    remedy = "see that it is there and that you may read it, or give another folder with --results"
    return ResultsError(what, where=str(path), remedy=remedy)


def _check_regular(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "this is not a regular file", str(path))
