"""Atomic writes: to a temporary file beside the target, flushed to disk, renamed; and checks of paths."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path

from seu_bench.errors import ResultsError
from seu_bench.utils.reading import read_file

#: Ending of files that are being written.
PART = ".part"


def write_atomic(path: Path, content: str | bytes, *, durable: bool = True) -> None:
    """Write ``content`` to ``path`` completely or not at all; text as UTF-8. Folders are made.

    Args:
        path: the file; a link is replaced, not followed.
        content: all of it.
        durable: whether it must outlast a loss of power.

    Raises:
        ResultsError: it cannot be written; what was there before still is.
    """
    part = path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}{PART}")
    try:
        make_folder(path.parent)
        try:
            # tempfile would make it readable for this user alone, and results are often shared.
            with part.open("xb") as file:
                file.write(content.encode("utf-8") if isinstance(content, str) else content)
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        if durable:
            with contextlib.suppress(OSError):  # where folders cannot be opened
                _flush_folder(path.parent)
    except (OSError, ValueError) as error:
        raise cannot_write(path, error) from error


def write_once(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` unless that is there already; a ResultsError: it cannot be written."""
    with contextlib.suppress(OSError, ResultsError):
        if read_file(path) == content:
            return
    try:
        write_atomic(path, content)
    except ResultsError as error:
        raise ResultsError(error.what, where=error.where, remedy="choose another folder") from error


def check_output(path: Path) -> None:
    """Refuse a file that the user named for output if something else than a regular file is there.

    Raises:
        ResultsError: there is a folder, link, device, pipe or socket, or the path cannot be looked at.
    """
    try:
        is_file = stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise cannot_write(path, error) from error
    if not is_file:
        raise ResultsError("will not be replaced: it is not a regular file", where=str(path), remedy="name a file")


def cannot_write(path: Path, error: OSError | ValueError) -> ResultsError:
    """The error that says why ``path`` cannot be written."""
    remedy = "choose a folder that can be written to with --results"
    if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        remedy = f"make room there and give the same command again, or {remedy}"
    reason = getattr(error, "strerror", None) or str(error)
    return ResultsError(f"cannot write results: {reason}", where=str(path), remedy=remedy)


def refuse_link(path: Path, remedy: str) -> None:
    """Refuse a link where results of strangers may lie: what is read and written below them must lie there.

    Raises:
        ResultsError: ``path`` is a link; ``remedy`` is its hint.
    """
    with contextlib.suppress(OSError, ValueError):  # reported where the path is used
        if path.is_symlink():
            what = "this is a link, which might lead out of the results folder"
            raise ResultsError(what, where=str(path), remedy=remedy)


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Make a folder with ``mode``, and those above it, while others may be removing empty ones."""
    for _ in range(20):
        # Path.mkdir says "exists" also of a folder that was there, and was removed before it asked whether it is one.
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            folder.mkdir(mode, parents=True, exist_ok=True)
            return
    folder.mkdir(mode, parents=True, exist_ok=True)


def remove_parts(folder: Path) -> None:
    """Remove what a process that was killed left half-written in ``folder``. Nobody else may be writing there."""
    with contextlib.suppress(OSError):
        for part in folder.glob(f".*{PART}"):
            part.unlink(missing_ok=True)


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
