"""Checkpoint files: written atomically, checksummed, and data only.

A file is one line of JSON, the :class:`Header`, and behind it what ``torch.save`` makes of tensors and plain values. It
is loaded with ``weights_only=True``, so that nothing in it is ever executed, whoever wrote it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, NonNegativeInt, ValidationError

from seu_bench._version import __version__
from seu_bench.errors import CheckpointError, ResultsError
from seu_bench.utils.files import remove_parts, write_atomic
from seu_bench.utils.reading import list_folder, open_file, read_file
from seu_bench.utils.text import printable

SCHEMA_VERSION: Final = 3
#: Number of checkpoints retained per run: the last, and one in case the last is corrupt.
KEPT: Final = 2
#: A header is a line of a few hundred bytes; what has no line end by then is no checkpoint.
_LONGEST_HEADER: Final = 10_000


class Position(BaseModel):
    """Position of a checkpoint in its run.

    Attributes:
        task: 0-based; the one being learned, or the next one.
        stage: the one being run; ``None`` between two tasks.
        epoch, epochs: epochs done, and of the stage.
    """

    model_config = ConfigDict(frozen=True)

    task: int
    stage: Annotated[str, AfterValidator(printable)] | None = None
    epoch: int = 0
    epochs: int = 0

    def __str__(self) -> str:
        epochs = f"epoch {self.epoch} of {self.epochs}" if self.epochs else None
        return ", ".join(filter(None, (f"task {self.task + 1}", self.stage, epochs)))


class Header(BaseModel):
    """First line of a checkpoint: SHA-256 and size of the rest, the version that wrote it, run and position."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: Literal["seu-bench checkpoint"] = "seu-bench checkpoint"
    schema_version: int = SCHEMA_VERSION
    seu_bench: str = __version__
    run_id: str
    position: Position
    sha256: str
    bytes: NonNegativeInt


def checkpoint_bytes(run_id: str, position: Position, state: Mapping[str, Any]) -> bytes:
    """A checkpoint as it is written, of nested collections of tensors and plain values."""
    import torch

    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    content = buffer.getbuffer()
    header = Header(run_id=run_id, position=position, sha256=hashlib.sha256(content).hexdigest(), bytes=content.nbytes)
    return b"".join((header.model_dump_json().encode(), b"\n", content))


def write_checkpoint(path: Path, run_id: str, position: Position, state: Mapping[str, Any]) -> int:
    """Write a checkpoint to a file, completely or not at all; returns its size in bytes."""
    document = checkpoint_bytes(run_id, position, state)
    write_atomic(path, document)
    return len(document)


def read_header(path: Path) -> Header:
    """Read the header of a checkpoint, without the state."""
    try:
        with open_file(path) as file:
            line = file.readline(_LONGEST_HEADER)
    except OSError as error:
        raise _refused(path, f"it cannot be read: {error.strerror or error}") from error
    return _header(path, line)


def read_checkpoint(path: Path, run_id: str, device: str = "cpu") -> dict[str, Any]:
    """Read the state in a checkpoint; tensors of an accelerator go to ``device``, the others to the CPU.

    Raises:
        CheckpointError: the file cannot be read, is cut or changed, is another run's, or of another version.
    """
    import torch
    from torch.serialization import default_restore_location

    header = read_header(path)
    if header.run_id != run_id:
        raise _refused(path, f"it belongs to the run {header.run_id!r}")
    if header.schema_version != SCHEMA_VERSION:
        raise _refused(
            path, f"it was written by seu-bench {header.seu_bench}, whose checkpoints this version cannot read"
        )
    try:
        # No more than the header says, so that a file without an end is not read to it.
        content = read_file(path, _LONGEST_HEADER + header.bytes).partition(b"\n")[2]
    except OSError as error:
        raise _refused(path, f"it cannot be read: {error.strerror or error}") from error
    if len(content) != header.bytes:
        raise _refused(path, f"it is {len(content)} bytes long, and was {header.bytes}")
    if hashlib.sha256(content).hexdigest() != header.sha256:
        raise _refused(path, "its content was changed: the checksum does not fit")
    try:
        state = torch.load(
            io.BytesIO(content),
            # Random states and tables belong to the CPU wherever a run is resumed.
            map_location=lambda data, place: data if place == "cpu" else default_restore_location(data, device),
            weights_only=True,
        )
    except Exception as error:  # whatever a file from a stranger can make torch raise
        first = next(iter(str(error).splitlines()), "")
        raise _refused(path, f"it holds no state: {type(error).__name__}: {first}") from error
    if not isinstance(state, dict):
        raise _refused(path, f"it holds no state but {type(state).__name__}")
    return state


def _header(path: Path, line: bytes) -> Header:
    try:
        return Header.model_validate_json(line)
    except ValidationError as error:
        raise _refused(path, "it is no checkpoint of seu-bench, or its beginning is damaged") from error


def _refused(path: Path, why: str) -> CheckpointError:
    return CheckpointError(f"a checkpoint cannot be used: {why}", where=str(path))


@dataclass
class CheckpointFolder:
    """Checkpoints of one run, numbered in the order of writing; the folder is made with the first one.

    Attributes:
        folder: where they lie.
        run_id: whose they are.
    """

    folder: Path
    run_id: str

    def write(self, position: Position, state: Mapping[str, Any]) -> int:
        """Write the next checkpoint, then remove those before the last; returns its size in bytes."""
        known = self.newest_first()
        number = int(known[0].stem) + 1 if known else 1
        name, document = f"{number:06d}.ckpt", checkpoint_bytes(self.run_id, position, state)
        write_atomic(self.folder / name, document)
        for old in known[KEPT - 1 :]:
            with contextlib.suppress(OSError):
                old.unlink()
        return len(document)

    def newest_first(self) -> list[Path]:
        """The files that are there.

        Raises:
            ResultsError: the folder cannot be read: a run must not start over because of that.
        """
        found = [path for path in list_folder(self.folder) if re.fullmatch(r"[0-9]+\.ckpt", path.name)]
        return sorted(found, key=lambda path: int(path.stem), reverse=True)

    def set_aside(self, path: Path) -> None:
        """Move a corrupt file out of the way."""
        with contextlib.suppress(OSError):
            path.replace(path.with_suffix(".refused"))

    def position(self) -> Position | None:
        """Return the position of the newest one whose header can be read; ``None``: there is none."""
        with contextlib.suppress(ResultsError):
            for path in self.newest_first():
                with contextlib.suppress(CheckpointError):
                    return read_header(path).position
        return None

    def clear(self) -> None:
        """Remove them all."""
        remove_parts(self.folder)
        with contextlib.suppress(OSError, ResultsError):
            for path in [*self.newest_first(), *self.folder.glob("*.refused")]:
                path.unlink()
            self.folder.rmdir()
