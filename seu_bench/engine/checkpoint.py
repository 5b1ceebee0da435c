"""Checkpoints of a run: files, when they are written, where the run stops, and how it is resumed from the newest.

A file is one line of JSON, the :class:`Header`, and what ``torch.save`` makes of tensors and plain values; it is loaded
with ``weights_only=True``, so that nothing in it is ever executed, whoever wrote it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, NonNegativeInt, ValidationError

from seu_bench._version import __version__
from seu_bench.errors import CheckpointError, ResultsError
from seu_bench.utils.files import remove_parts, write_atomic
from seu_bench.utils.reading import list_folder, open_file, read_file
from seu_bench.utils.text import printable

if TYPE_CHECKING:
    from seu_bench.engine.recorder import RunRecorder
    from seu_bench.engine.stopping import StopRequest

SCHEMA_VERSION: Final = 3
#: Share of a run's time that checkpoints may take, unless the user says how often to write them.
SHARE: Final = 0.02
#: Number of checkpoints retained per run: the last, and one in case the last is corrupt.
_KEPT: Final = 2
#: A header is a line of a few hundred bytes; what has no line end by then is no checkpoint.
_LONGEST_HEADER: Final = 10_000
#: Seconds that writing is expected to take where it was not measured yet.
_FIRST_SECONDS: Final = 0.02


class Position(BaseModel):
    """Position of a checkpoint: the task being learned, or the next one, from 0; its stage; epochs done, and of it."""

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


def write_checkpoint(path: Path, run_id: str, position: Position, state: Mapping[str, Any]) -> None:
    """Write nested collections of tensors and plain values, completely or not at all."""
    import torch

    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    content = buffer.getbuffer()
    header = Header(run_id=run_id, position=position, sha256=hashlib.sha256(content).hexdigest(), bytes=content.nbytes)
    write_atomic(path, b"".join((header.model_dump_json().encode(), b"\n", content)))


def read_header(path: Path) -> Header:
    """Read the header of a checkpoint, without the state; a CheckpointError says why that cannot be."""
    with _name_read_errors(path), open_file(path) as file:
        return Header.model_validate_json(file.readline(_LONGEST_HEADER))


@contextlib.contextmanager
def _name_read_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _refusal(path, f"it cannot be read: {error.strerror or error}") from error
    except ValidationError as error:
        raise _refusal(path, "it is no checkpoint of seu-bench, or its beginning is damaged") from error


def read_checkpoint(path: Path, run_id: str, device: str = "cpu") -> dict[str, Any]:
    """Read the state in a checkpoint; tensors of an accelerator go to ``device``, the others to the CPU.

    A CheckpointError: the file cannot be read, is cut or changed, is another run's, or of another version.
    """
    import torch
    from torch.serialization import default_restore_location

    header = read_header(path)
    if header.run_id != run_id:
        raise _refusal(path, f"it belongs to the run {header.run_id!r}")
    if header.schema_version != SCHEMA_VERSION:
        raise _refusal(path, f"it was written by seu-bench {header.seu_bench}, whose checkpoints cannot be read here")
    with _name_read_errors(path):  # no more than the header says, so that a file without an end is not read to it
        content = read_file(path, _LONGEST_HEADER + header.bytes).partition(b"\n")[2]
    if hashlib.sha256(content).hexdigest() != header.sha256:
        raise _refusal(path, "it was cut or changed: the checksum does not fit")
    try:
        state = torch.load(
            io.BytesIO(content),
            # Random states and tables belong to the CPU wherever a run is resumed.
            map_location=lambda data, place: data if place == "cpu" else default_restore_location(data, device),
            weights_only=True,
        )
    except Exception as error:  # whatever a file from a stranger can make torch raise
        first = next(iter(str(error).splitlines()), "")
        raise _refusal(path, f"it holds no state: {type(error).__name__}: {first}") from error
    return state if isinstance(state, dict) else {}  # which no strategy takes for its state


def _refusal(path: Path, why: str) -> CheckpointError:
    return CheckpointError(f"a checkpoint cannot be used: {why}", where=str(path))


@dataclass
class CheckpointFolder:
    """Checkpoints of one run, numbered in the order of writing; the folder is made with the first one."""

    folder: Path
    run_id: str

    def write(self, position: Position, state: Mapping[str, Any]) -> None:
        """Write the next checkpoint, then remove those before the last."""
        known = self.newest_first()
        number = int(known[0].stem) + 1 if known else 1
        write_checkpoint(self.folder / f"{number:06d}.ckpt", self.run_id, position, state)
        for old in known[_KEPT - 1 :]:
            with contextlib.suppress(OSError):
                old.unlink()

    def newest_first(self) -> list[Path]:
        """The files that are there. A folder that cannot be read is an error: a run must not start over for that."""
        found = [path for path in list_folder(self.folder) if re.fullmatch(r"[0-9]+\.ckpt", path.name)]
        return sorted(found, key=lambda path: int(path.stem), reverse=True)

    def position(self) -> Position | None:
        """Position of the newest one whose header can be read; ``None``: there is none."""
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


def is_resumable(strategy: Any) -> bool:
    """Whether checkpoints can be made of a strategy."""
    from seu_bench.training.strategy import StagedStrategy

    return isinstance(strategy, StagedStrategy) and strategy.resumable


@dataclass
class CheckpointManager:
    """Writes checkpoints at the points where a run can be resumed from its state alone, and stops the run there.

    Attributes:
        state: returns the run's whole state.
        every: seconds between two checkpoints at least; ``None``: by :data:`SHARE`.
        notice: called with what the user should know.
        written, seconds: number of checkpoints, and seconds that they took.
    """

    folder: CheckpointFolder
    state: Callable[[], Mapping[str, Any]]
    _: KW_ONLY
    every: float | None
    stop: StopRequest
    notice: Callable[[str], None]
    written: int = field(default=0, init=False)
    seconds: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._began = self._last = self._point = time.monotonic()
        self._noticed: set[str] = set()
        self._last_seconds = _FIRST_SECONDS

    def resume(self, strategy: Any, build: Callable[[], Any], recorder: RunRecorder, device: str) -> Any:
        """Return an untrained strategy at the position of the newest usable checkpoint, and set the record to it;
        ``build`` makes another one after a checkpoint that could not be loaded."""
        known = self.folder.newest_first() if is_resumable(strategy) else []
        for path in known:
            try:
                state = read_checkpoint(path, self.folder.run_id, device)
                recorder.check_state(state.get("record"))  # first: a strategy of other code may take the state or not
                strategy.load_state_dict(state.get("strategy"))
                recorder.load_state_dict(state.get("record"))
                learned, evaluated = strategy.learned, recorder.evaluated
                if not strategy.whole_stream and learned not in (evaluated, evaluated + 1):
                    raise _refusal(path, f"{learned} tasks are learned, {evaluated} evaluated")
            except CheckpointError as error:
                self.notice(f"{error.what} ({path})")
                with contextlib.suppress(OSError):
                    path.replace(path.with_suffix(".refused"))
                strategy = build()
                continue
            self.notice(f"resuming from {self.folder.position()}")
            if recorder.record.earlier_environments or recorder.record.earlier_code:
                self.notice("parts of the run were made elsewhere or by other versions or code; the record says which")
            return strategy
        if known:
            self.notice("no checkpoint can be used: the run starts over")
        return strategy

    def maybe_save(self, position: Position, *, resumable: bool = True) -> None:
        """Save if due, and stop the run by an Interruption if asked to; called between two epochs, or two tasks.

        Where a run could not be resumed, nothing is saved.
        """
        now = time.monotonic()
        ahead, self._point = now - self._point, now  # what comes next is expected to take as long as what came last
        interruption = self.stop.due(ahead + self._last_seconds if resumable else 0.0)
        by_share = self.seconds + self._last_seconds <= SHARE * (now - self._began)
        is_due = by_share if self.every is None else now - self._last >= self.every
        if resumable and (interruption is not None or is_due):
            self._write(position)
        if interruption is not None:
            raise interruption

    def _write(self, position: Position) -> None:
        from seu_bench.training.state import not_finite

        began = time.monotonic()
        state = self.state()
        if (name := not_finite(state)) is not None:
            # A run resumed from it could only fail again; the last one that is finite is worth more.
            self._notice_once("not finite", f"no checkpoint is written at {position}: {name} is not finite")
        else:
            try:
                self.folder.write(position, state)
                self.written += 1
            except ResultsError as error:
                # A run without is better than none; that the record cannot be written is noticed when it is.
                told = f"no checkpoint could be written, the run continues without: {error.what} ({error.where})"
                self._notice_once("not written", told)
        self._last = time.monotonic()
        self._last_seconds = self._last - began
        self.seconds += self._last_seconds

    def _notice_once(self, kind: str, message: str) -> None:
        if kind not in self._noticed:
            self._noticed.add(kind)
            self.notice(message)
