"""A run's folder: what lies in it, what becomes of it when a run begins, starts over and ends, and the run's state."""

from __future__ import annotations

import contextlib
import os
import shutil
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from seu_bench.config.options import format_option
from seu_bench.engine.checkpoint import CheckpointFolder, Position
from seu_bench.engine.forecast import PROGRESS_NAME
from seu_bench.errors import NewerRecordError, ResultsError, RunError, SeuBenchError
from seu_bench.plugin.registry import Entry
from seu_bench.results.record import (
    RECORD_NAME,
    CodeRecord,
    Record,
    read_record,
    record_path,
    refuse_other_code,
    runs_folder,
)
from seu_bench.results.record_files import DETAILS, LEARNER_NAME, MODEL_NAME
from seu_bench.results.record_metrics import measured_rows
from seu_bench.training.interfaces import StrategyFactory
from seu_bench.utils.files import cannot_write, make_folder, refuse_link, remove_parts, write_atomic
from seu_bench.utils.hardware import SHORTAGE_REMEDIES, shortage
from seu_bench.utils.locks import LOCK_NAME, Holder, holder_of
from seu_bench.utils.progress import track
from seu_bench.utils.reading import cannot_read, list_folder

State: TypeAlias = Literal["finished", "running", "interrupted", "failed", "unreadable"]


class RunFolder:
    """``<results>/runs/<run id>``. Only who holds its lock may change anything there.

    Attributes:
        log: the traceback of a run that failed.
        previous: the finished run that ``--restart`` is about to replace; it goes when the new one is finished.
    """

    def __init__(self, results: Path, run_id: str) -> None:
        self.record = record_path(results, run_id)
        self.folder = self.record.parent
        self.log = self.folder / "error.txt"
        self.progress = self.folder / PROGRESS_NAME
        self.model = self.folder / MODEL_NAME
        self.learner = self.folder / LEARNER_NAME
        self.previous = self.folder / "previous"
        self.checkpoints = CheckpointFolder(self.folder / "checkpoints", run_id)

    def refuse_links(self) -> None:
        """Check that no path that is written or removed here is a link."""
        for path in (self.checkpoints.folder, self.previous, self.model, self.learner, self.log, self.progress):
            refuse_link(path, "remove the link")

    def finished(self, code: Sequence[CodeRecord] | None = None, *, restart: bool = False) -> Record | None:
        """Record of the run if it is finished, usable and not to be made again in any case (``restart``).

        A newer version's is refused, never overwritten; so is what other code than ``code`` made.
        """
        try:
            known = read_record(self.record)
        except NewerRecordError:
            raise
        except ResultsError:
            return None  # there is none, or a corrupt one, which is made again
        if restart or known.status != "finished" or known.run_id != self.folder.name:
            return None
        if code is not None:
            refuse_other_code(known.code, code, str(self.record))
        return known

    @property
    def has_leftovers(self) -> bool:
        """Whether something remains of an attempt that was killed when it had finished."""
        leftovers = (self.checkpoints.folder, self.previous, self.progress, *self.folder.glob(f"{LOCK_NAME}*"))
        return any(os.path.lexists(path) for path in leftovers)

    def start_over(self) -> None:
        """Remove checkpoints, but keep a finished run until the new one is."""
        self.checkpoints.clear()
        if self.finished() is None:
            return
        try:
            make_folder(self.previous)
            # The record first: without it nothing is a finished run.
            for path in (self.record, self.model, self.learner, *self.folder.glob("*.onnx")):
                if path.is_file():
                    path.replace(self.previous / path.name)
        except OSError as error:
            raise cannot_write(self.previous, error) from error

    def keep_failure(self, error: Exception, strategy: Entry[StrategyFactory], options: Mapping[str, Any]) -> RunError:
        """Write the traceback beside the record, and return an error that names the failure, that file, and the
        ``options`` that were given, one of which may be its cause."""
        write_atomic(self.log, "".join(traceback.format_exception(error)))
        if isinstance(error, SeuBenchError):
            return RunError(error.what, where=error.where or str(self.log), remedy=error.remedy)
        if lacking := shortage(error):
            what, remedy = f"the machine has not enough {lacking} for this run", SHORTAGE_REMEDIES[lacking]
            remedy = f"{remedy}; the same command resumes the run"
        elif "Expected more than 1 value per channel" in str(error):
            what = "a batch of one image cannot train a network with BatchNorm"
            remedy = "raise batch_size (searcher.batch_size or creator.batch_size where its stage failed) to 2 or more"
        else:
            what = f"strategy {strategy.name!r} of package {strategy.package} failed"
            given = ", ".join(f"{key}={format_option(value)}" for key, value in options.items())
            remedy = f"try other options than {given}, or " if given else ""
            remedy += f"report it to the author of {strategy.package}; that file has the traceback"
        return RunError(f"{what}: {type(error).__name__}: {error}", where=str(self.log), remedy=remedy)

    def remove_remains(self) -> None:
        """Remove what an earlier attempt left behind that no later one needs."""
        for folder in (self.folder, self.checkpoints.folder):
            remove_parts(folder)
        for path in (self.log, self.progress):
            with contextlib.suppress(OSError):
                path.unlink()

    def remove_unfinished(self) -> None:
        """Remove what only an unfinished run needs."""
        self.checkpoints.clear()
        with contextlib.suppress(OSError):
            self.progress.unlink()
        shutil.rmtree(self.previous, ignore_errors=True)


@dataclass(frozen=True)
class RunState:
    """State of one run's folder.

    Attributes:
        state: ``interrupted`` also where the process was killed and its record still says ``running``.
        record: of listed runs without stages and other details.
        position: where its newest checkpoint stands; ``None``: there is none.
        evaluated: tasks that were learned and evaluated.
        holder: the process that makes it.
        detail: why it failed or was interrupted, or why its record cannot be read.
    """

    run_id: str
    state: State
    record: Record | None
    position: Position | None
    evaluated: int
    holder: Holder | None
    detail: str | None

    def document(self) -> dict[str, Any]:
        """Return plain values for other programs."""
        record, holder = self.record, self.holder
        return {
            "run_id": self.run_id,
            "state": self.state,
            "tasks": len(record.task_names) if record else None,
            "evaluated": self.evaluated,
            "position": self.position.model_dump() if self.position else None,
            "seconds": record.seconds if record else None,
            "host": holder.host if holder else None,
            "pid": holder.pid if holder else None,
            "detail": self.detail,
        }


def list_runs(results: Path) -> Iterator[RunState]:
    """List every run below a results folder, in the order of run ids; no file is changed.

    Raises:
        ResultsError: the folder of runs cannot be read.
    """
    for folder in track(list_folder(runs_folder(results)), "reading runs"):
        if (state := _state_of(folder)) is not None:
            yield state if state.record is None else replace(state, record=state.record.model_copy(update=DETAILS))


def find_state(results: Path, run_id: str) -> RunState | None:
    """Look up one run below a results folder; ``None``: it has no folder. No file is changed."""
    return _state_of(runs_folder(results) / run_id)


def _state_of(folder: Path) -> RunState | None:
    """State of a run's folder; ``None``: it is the folder of no run."""
    holder = holder_of(folder) if os.path.lexists(folder / LOCK_NAME) else None
    if holder is not None and holder.alive is False:
        holder = None  # dead; one on another host cannot be asked and counts as alive
    try:
        if not folder.is_dir() or (not _has_record(folder) and holder is None):
            return None
    except OSError as error:
        return RunState(folder.name, "unreadable", None, None, 0, holder, cannot_read(folder, error).what)
    record, detail, evaluated = None, None, 0
    state: State = "running"
    try:
        record = read_record(folder)
        state, detail, evaluated = record.status, record.error, len(measured_rows(record))
        if state == "running" and holder is None:
            state, detail = "interrupted", "the process ended without a message"
    except ResultsError as error:
        if holder is None:
            state, detail = "unreadable", error.what
    position = None if state == "finished" else CheckpointFolder(folder / "checkpoints", folder.name).position()
    return RunState(folder.name, state, record, position, evaluated, holder, detail)


def _has_record(folder: Path) -> bool:
    """Whether there is a record, or something else of its name; OSError: that cannot be seen."""
    try:
        (folder / RECORD_NAME).lstat()
    except FileNotFoundError:
        return False
    return True
