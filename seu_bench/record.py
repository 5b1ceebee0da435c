"""The record of a run: one JSON file from which leaderboards and reports are made, and can be made again.

It lies in ``<results>/runs/<run_id>/record.json`` and is always whole: it is written to a temporary file, flushed to
disk and renamed.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seu_bench.errors import ResultsError
from seu_bench.options import fault_lines

SCHEMA_VERSION = 1
RECORD_NAME = "record.json"

Status: TypeAlias = Literal["running", "finished", "failed", "interrupted"]
Matrix: TypeAlias = tuple[tuple[float | None, ...], ...]


class Document(BaseModel):
    """Part of a record. Keys that a later version added are kept out, not refused."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class StageRecord(Document):
    """What one stage of one task took.

    Attributes:
        task: 0-based.
        image_passes: images passed forward, whether to train or to evaluate.
    """

    name: str
    task: int
    epochs: int
    seconds: float
    image_passes: int


class Environment(Document):
    """Where a run was made."""

    versions: dict[str, str] = Field(default_factory=dict)
    device: str = "cpu"
    git_revision: str | None = None
    platform: str = ""
    threads: int | None = None


class Record(Document):
    """Everything that is known of a run.

    Attributes:
        accuracy_matrix: ``R[i][j]`` in [0, 1], accuracy on task j's test images after learning task i; ``None`` where
            it was not measured. Tasks are in the order in which they were learned.
        metrics: by id; the definitions are in :mod:`seu_bench.metrics`. ``None``: not measured, or not defined.
        params_total, params_active: parameters stored, and on the task's own path, after each task.
        genotypes: per task, the unit found for it (strategies that search).
        paths: per task, the unit used in each layer (strategies that choose).
        choices: per task, what was done in each layer, e.g. ``new``, ``reuse 0``, ``adapt 1`` (strategies that
            choose what to do with a unit).
        unit_tasks: per layer, the task that each unit was made for.
        data_fingerprint: of the data sets as loaded and how they are cut into tasks, without the seed.
    """

    schema_version: int = SCHEMA_VERSION
    run_id: str
    status: Status
    error: str | None = None
    strategy: str
    options: dict[str, Any] = Field(default_factory=dict)
    searcher: str | None = None
    searcher_options: dict[str, Any] = Field(default_factory=dict)
    creator: str | None = None
    creator_options: dict[str, Any] = Field(default_factory=dict)
    benchmark: str
    benchmark_version: int
    benchmark_overrides: dict[str, Any] = Field(default_factory=dict)
    protocol: str
    protocol_settings: dict[str, Any] = Field(default_factory=dict)
    ranked: bool = True
    seed: int
    limit: int | None = None
    synthetic: bool = False
    task_order: tuple[int, ...] = ()
    task_names: tuple[str, ...] = ()
    task_classes: tuple[int, ...] = ()
    accuracy_matrix: Matrix = ()
    metrics: dict[str, float | int | None] = Field(default_factory=dict)
    params_total: tuple[int, ...] = ()
    params_active: tuple[int, ...] = ()
    macs: tuple[int, ...] = ()
    stages: tuple[StageRecord, ...] = ()
    genotypes: tuple[dict[str, Any] | None, ...] | None = None
    paths: tuple[tuple[int, ...], ...] | None = None
    choices: tuple[tuple[str, ...], ...] | None = None
    unit_tasks: tuple[tuple[int, ...], ...] | None = None
    data_fingerprint: str | None = None
    environment: Environment = Environment()
    started: str = ""
    seconds: float | None = None

    @property
    def may_be_ranked(self) -> bool:
        """Whether it can enter a leaderboard: finished, on real data, whole, by a protocol that is ranked."""
        return self.status == "finished" and self.ranked and not self.synthetic and self.limit is None

    def without_times(self) -> dict[str, Any]:
        """What must be equal in two runs of one seed on one machine: all but clocks and measured memory."""
        document = self.model_dump(mode="json", exclude={"started", "seconds"})
        for stage in document["stages"]:
            del stage["seconds"]
        for name in ("train_seconds", "search_seconds", "peak_memory_bytes"):
            document["metrics"].pop(name, None)
        return document


def runs_folder(results: Path) -> Path:
    """Where the runs of a results folder are."""
    return results / "runs"


def record_path(results: Path, run_id: str) -> Path:
    """The record of one run."""
    return runs_folder(results) / run_id / RECORD_NAME


def write_record(results: Path, record: Record) -> Path:
    """Write a record whole or not at all.

    Raises:
        ResultsError: the folder cannot be written to.
    """
    path = record_path(results, record.run_id)
    text = json.dumps(record.model_dump(mode="json"), indent=1, allow_nan=False)
    write_whole(path, text + "\n")
    return path


def write_whole(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` by a temporary file beside it, flushed and renamed.

    Raises:
        ResultsError: it cannot be written; nothing half-written is left.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
            raise
    except OSError as error:
        raise ResultsError(
            f"cannot write results: {error.strerror or error}",
            where=str(path),
            remedy="choose a folder that can be written to with --results",
        ) from error


def read_record(path: Path) -> Record:
    """Read one record.

    Args:
        path: the file, or the run's folder.

    Raises:
        ResultsError: it is not there or is not a record.
    """
    file = path / RECORD_NAME if path.is_dir() else path
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ResultsError(f"the record cannot be read: {error}", where=str(file)) from error
    try:
        return Record.model_validate_json(text)
    except ValidationError as error:
        raise ResultsError(
            "this is not a whole record: " + "; ".join(fault_lines(error)[:5]),
            where=str(file),
            remedy="remove the run's folder and run it again",
        ) from error


def read_records(results: Path) -> Iterator[Record | ResultsError]:
    """Every record below a results folder in the order of run ids; what cannot be read comes as its error."""
    try:
        folders = sorted(path for path in runs_folder(results).iterdir() if path.is_dir())
    except OSError:
        return
    for folder in folders:
        if not (folder / RECORD_NAME).is_file():
            continue
        try:
            yield read_record(folder)
        except ResultsError as error:
            yield error


def find_record(results: Path, name: str) -> Record:
    """The record that ``name`` means: a run id, a unique beginning of one, or a run's folder.

    Raises:
        ResultsError: none or several fit.
    """
    as_path = Path(name)
    if (as_path / RECORD_NAME).is_file() or (as_path.name == RECORD_NAME and as_path.is_file()):
        return read_record(as_path)
    folder = runs_folder(results)
    known = sorted(path.parent.name for path in folder.glob(f"*/{RECORD_NAME}")) if folder.is_dir() else []
    fitting = [run_id for run_id in known if run_id == name] or [run_id for run_id in known if run_id.startswith(name)]
    if len(fitting) == 1:
        return read_record(folder / fitting[0])
    if fitting:
        raise ResultsError(
            f"{name!r} is the beginning of {len(fitting)} runs: {', '.join(fitting[:5])}",
            where=str(folder),
            remedy="give more of the run id",
        )
    raise ResultsError(
        f"no run is called {name!r}",
        where=str(folder),
        remedy="see which there are in that folder, or give another one with --results",
    )
