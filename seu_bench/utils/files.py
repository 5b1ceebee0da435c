"""Atomic writes: to a temporary file beside the target, flushed to disk, renamed; and checks of paths."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import sys
from pathlib import Path
from typing import Final

from seu_bench.errors import ResultsError

#: What a path that is no regular file is, by the type in its mode.
KINDS: Final = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link",
}

#: Ending of files that are being written.
PART = ".part"

#: The disk, the user's share of it, or the largest file that is allowed, is used up.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: What a file system says that cannot flush a file.
_CANNOT_FLUSH = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


class HeldFolder:
    """A folder that is written to by its handle: wherever it was moved to meanwhile, and nowhere else.

    Where the system has no such handles (Windows), it is written to by its path.

    Args:
        path: the folder, which exists and is no link.
        within: the held folder that it lies in; ``None``: it is found by its path.

    Raises:
        OSError: there is no such folder.

    Example:
        ``with HeldFolder(folder) as held: held.write("record.json", text)``
    """

    def __init__(self, path: Path, within: HeldFolder | None = None) -> None:
        self.path = path
        self.handle: int | None = None
        if os.open in os.supports_dir_fd and hasattr(os, "O_DIRECTORY"):
            flags = os.O_RDONLY | os.O_DIRECTORY | (os.O_NOFOLLOW if within is not None else 0)
            place, inside = (path, None) if within is None else within.at(path.name)
            self.handle = os.open(place, flags, dir_fd=inside)

    def __enter__(self) -> HeldFolder:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Give the handle back."""
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None

    def at(self, name: str) -> tuple[str | Path, int | None]:
        """How the functions of :mod:`os` are told a file in it: a name and ``dir_fd``."""
        return (name, self.handle) if self.handle is not None else (self.path / name, None)

    def subfolder(self, name: str) -> HeldFolder:
        """A folder in it, which is made if need be."""
        place, inside = self.at(name)
        with contextlib.suppress(FileExistsError):
            os.mkdir(place, dir_fd=inside)
        return HeldFolder(self.path / name, self)

    def write(self, name: str, content: str | bytes, *, durable: bool = True) -> None:
        """Write a file in it completely or not at all; text as UTF-8.

        Args:
            name: of the file.
            content: all of it.
            durable: whether it must outlast a loss of power.

        Raises:
            ResultsError: it cannot be written; what was there before still is.
        """
        data = content.encode("utf-8") if isinstance(content, str) else content
        (new, inside), (old, _) = (self.at(n) for n in (f".{name[:100]}.{secrets.token_hex(6)}{PART}", name))
        try:
            try:
                _write_new(new, inside, data, durable=durable)
                os.replace(new, old, src_dir_fd=inside, dst_dir_fd=inside)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(new, dir_fd=inside)
                raise
            if durable and self.handle is not None:
                with contextlib.suppress(OSError):  # where folders cannot be flushed
                    os.fsync(self.handle)
        except (OSError, ValueError) as error:
            raise cannot_write(self.path / name, error) from error


def write_atomic(path: Path, content: str | bytes, *, durable: bool = True) -> None:
    """Write ``content`` to ``path`` completely or not at all; text as UTF-8. Folders are made.

    Args:
        path: the file.
        content: all of it.
        durable: whether it must outlast a loss of power.

    Raises:
        ResultsError: it cannot be written; what was there before still is.
    """
    try:
        make_folder(path.parent)
        held = HeldFolder(path.parent)
    except (OSError, ValueError) as error:
        raise cannot_write(path, error) from error
    with held:
        held.write(path.name, content, durable=durable)


def is_standard_output(path: Path) -> bool:
    """Whether the user means standard output by a path: ``-`` or ``/dev/stdout``."""
    return str(path) in ("-", "/dev/stdout")


def check_output(path: Path) -> None:
    """Refuse a file that the user named for output if something else than a regular file is there.

    It would be replaced: a device or a pipe by a file, and a link would lead nowhere any more.

    Raises:
        ResultsError: there is a folder, link, device, pipe or socket, or the path cannot be looked at.
    """
    if is_standard_output(path):
        return
    try:
        kind = stat.S_IFMT(os.lstat(path).st_mode)
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise cannot_write(path, error) from error
    if kind != stat.S_IFREG:
        raise ResultsError(
            f"will not be replaced: it is {KINDS.get(kind, 'something else')}, not a regular file",
            where=str(path),
            remedy="name a file, or - for standard output",
        )


def write_output(path: Path, content: str | bytes) -> None:
    """Write what the user asked for to a regular file, completely or not at all, or to standard output.

    Args:
        path: the file; ``-`` or ``/dev/stdout`` for standard output.
        content: all of it; text as UTF-8.

    Raises:
        ResultsError: it cannot be written, or something else than a regular file is there.
    """
    check_output(path)
    if is_standard_output(path):
        sys.stdout.flush()
        sys.stdout.buffer.write(content.encode("utf-8") if isinstance(content, str) else content)
        sys.stdout.buffer.flush()
    else:
        write_atomic(path, content)


def cannot_write(path: Path, error: OSError | ValueError) -> ResultsError:
    """The error that says why ``path`` cannot be written."""
    reason = getattr(error, "strerror", None) or str(error)
    remedy = "choose a folder that can be written to with --results"
    if getattr(error, "errno", None) in _FULL:
        remedy = f"make room there and give the same command again, or {remedy}"
    return ResultsError(f"cannot write results: {reason}", where=str(path), remedy=remedy)


def refuse_link(path: Path, remedy: str) -> None:
    """Refuse a link where results of strangers may lie: what is read and written below them must lie there.

    Args:
        path: to check.
        remedy: advice of the error.

    Raises:
        ResultsError: ``path`` is a link.
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
            with contextlib.suppress(OSError):
                part.unlink()


def _write_new(place: str | Path, inside: int | None, data: bytes, *, durable: bool) -> None:
    # tempfile would make it readable for this user alone, and results are often shared.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(place, flags, 0o666, dir_fd=inside), "wb") as file:
        file.write(data)
        file.flush()
        if durable:
            try:
                os.fsync(file.fileno())
            except OSError as error:
                if error.errno not in _CANNOT_FLUSH:
                    raise
