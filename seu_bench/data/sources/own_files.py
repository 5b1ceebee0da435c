"""Files and folders of the user's own: found, listed, summed up, and refused with their path."""

from __future__ import annotations

import hashlib
import os
import stat
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from seu_bench.data.dataset import DatasetInfo, DatasetState, RawDataset
from seu_bench.errors import DataError, DataMissingError
from seu_bench.utils.files import KINDS


class OwnFiles(ABC):
    """File or folder of the user's own; it cannot be downloaded, and ``root`` plays no part."""

    kind: ClassVar[str]

    def __init__(self, definition: Any, name: str) -> None:
        self.definition, self.name = definition, name
        self.path: Path = definition.path
        self.summary = f"{self.kind} {self.path}"

    @abstractmethod
    def load(self, root: Path | None) -> RawDataset:
        """Read it into memory; a :class:`DataError` where the files are missing or unfit."""

    def info(self, root: Path | None) -> DatasetInfo:
        """Shape and sizes; the set is loaded for them."""
        return self.load(root).info

    def state(self, root: Path | None) -> DatasetState:
        """Whether the set can be used, as far as :meth:`info` can tell."""
        size: int | None = None
        try:
            self.check_exists()
            size = sum(file.stat().st_size for file in self.files())
            self.info(root)
        except DataMissingError:
            return DatasetState("missing", self.path)
        except DataError as error:
            return DatasetState("corrupt", self.path, size or 0, error.what)
        return DatasetState("complete", self.path, size)

    def checksum(self) -> str:
        """SHA-256 of the file, or of the sorted relative paths and sizes of a folder's files; nothing is decoded."""
        self.check_exists()
        if self.path.is_file():
            with self.path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        lines = (f"{file.relative_to(self.path).as_posix()}\0{file.stat().st_size}\n" for file in self.files())
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def fetch(self, root: Path) -> None:
        """Refuse: the user's own files cannot be downloaded."""
        raise self.fault("is your own and cannot be downloaded", "put the files there by hand")

    def check_exists(self) -> None:
        """Raise the error of a path that does not exist or cannot be read."""
        try:
            exists = self.path.exists()
            kind = stat.S_IFMT(self.path.stat().st_mode) if exists else stat.S_IFREG
        except (OSError, ValueError) as error:
            raise self._unreadable(self.path, error) from error
        if not exists:
            remedy = (
                "correct its 'path' in the benchmark file (relative paths start from that file), or put the data there"
            )
            raise self.fault("is missing", remedy, DataMissingError)
        if kind not in (stat.S_IFREG, stat.S_IFDIR):
            raise self.fault(f"is {KINDS.get(kind, 'something else')}, neither file nor folder", "give another path")

    def files(self, folder: Path | None = None) -> list[Path]:
        """The file itself, or all files below a folder, sorted by relative path; hidden ones are passed over.

        Raises:
            DataError: a folder or a file in it cannot be read, or is neither a file nor a folder.
        """
        folder = folder or self.path
        if folder.is_file():
            return [folder]
        found: list[Path] = []
        seen: set[tuple[int, int]] = set()
        try:
            for parent, folders, names in os.walk(folder, onerror=_raise, followlinks=True):
                here = Path(parent)
                place = here.stat()
                if (place.st_dev, place.st_ino) in seen:
                    raise self.fault("has a folder twice, by a link", "remove the link", where=here)
                seen.add((place.st_dev, place.st_ino))
                folders[:] = [name for name in folders if not name.startswith(".")]
                visible = [here / name for name in names if not name.startswith(".")]
                for file in visible:
                    if not stat.S_ISREG(file.stat().st_mode):
                        raise self.fault("has something that is neither file nor folder", "remove it", where=file)
                found += visible
        except (OSError, ValueError) as error:
            raise self._unreadable(Path(getattr(error, "filename", None) or folder), error) from error
        return sorted(found, key=lambda file: file.relative_to(folder).as_posix())

    def _unreadable(self, path: Path, error: OSError | ValueError) -> DataError:
        reason = getattr(error, "strerror", None) or error
        return self.fault(f"cannot be read: {reason}", "see that you may read it, or remove it", where=path)

    def fault(self, what: str, remedy: str, kind: type[DataError] = DataError, where: Path | None = None) -> DataError:
        """An error of the set, or of the file ``where`` in it."""
        return kind(f"data set {self.name!r} {what}", where=str(where or self.path), remedy=remedy)


def _raise(error: OSError) -> None:
    raise error
