"""States of the runs of a results folder, and their positions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from seu_bench.engine.checkpoint import CheckpointFolder, Position
from seu_bench.errors import ResultsError
from seu_bench.results.record import RECORD_NAME, Record, read_record, runs_folder
from seu_bench.utils.locks import Holder, holder_of
from seu_bench.utils.progress import tracked

State: TypeAlias = Literal["finished", "running", "interrupted", "failed", "unreadable"]


@dataclass(frozen=True)
class RunState:
    """State of one run's folder.

    Attributes:
        run_id: the folder's name.
        state: ``interrupted`` also where the process was killed and its record still says ``running``.
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
        """Plain values."""
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

    Args:
        results: the folder that holds the runs.

    Yields:
        State of each run.
    """
    try:
        folders = sorted(path for path in runs_folder(results).iterdir() if path.is_dir())
    except OSError:
        return
    for folder in tracked(folders, "reading runs"):
        if (state := _state_of(folder)) is not None:
            yield state


def find_state(results: Path, run_id: str) -> RunState | None:
    """Look up one run below a results folder; no file is changed.

    Args:
        results: the folder that holds the runs.
        run_id: of the run.

    Returns:
        Its state; ``None`` if it has no folder.
    """
    return _state_of(runs_folder(results) / run_id)


def _state_of(folder: Path) -> RunState | None:
    holder = holder_of(folder)
    if holder is not None and holder.alive is False:
        holder = None  # dead; one on another host cannot be asked and counts as alive
    if not (folder / RECORD_NAME).is_file() and holder is None:
        return None
    position = CheckpointFolder(folder / "checkpoints", folder.name).position()
    try:
        record = read_record(folder)
    except ResultsError as error:
        state: State = "running" if holder else "unreadable"
        return RunState(folder.name, state, None, position, 0, holder, None if holder else error.what)
    killed = record.status == "running" and holder is None
    state = "interrupted" if killed else record.status
    evaluated = sum(stage.name == "evaluation" for stage in record.stages)
    detail = "the process ended without a message" if killed else record.error
    return RunState(folder.name, state, record, position, evaluated, holder, detail)
