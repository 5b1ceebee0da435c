"""Files in ``<results>/slurm``: which Slurm job makes which job of the sweep, its events and its output."""

from __future__ import annotations

import json
import os
import shlex
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from seu_bench.errors import ResultsError
from seu_bench.plugin import Event, Job, event_from_json
from seu_bench.utils import printable, write_atomic
from seu_bench.utils.files import cannot_write, make_folder

#: The folder in a results folder.
FOLDER: Final = "slurm"


@dataclass(frozen=True)
class Note:
    """Which Slurm job makes a job of the sweep.

    Attributes:
        slurm_job: its id, ``12_3`` for an element of an array.
        events: file of its events.
    """

    slurm_job: str
    events: Path


def jobs_folder(results: Path) -> Path:
    """Folder of submitit's files: job inputs and logs."""
    return results / FOLDER / "jobs"


def own_jobs_folder(results: Path) -> Path:
    """Make the folder of submitit's files, or check it: what lies there is unpickled, and may run anything.

    Raises:
        ResultsError: it is a link or somebody else's, or others may write to it.
    """
    folder = jobs_folder(results)
    try:
        make_folder(folder, 0o700)
        state = folder.lstat()
    except OSError as error:
        raise cannot_write(folder, error) from error
    is_mine = state.st_uid == os.geteuid() and stat.S_ISDIR(state.st_mode)
    if not is_mine or state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ResultsError(
            "others may write here, and Slurm's jobs run what lies here",
            where=str(folder),
            remedy=f"make it yours alone (chmod 700 {shlex.quote(str(folder))}), or give another folder with --results",
        )
    return folder


def new_events(job: Job) -> Path:
    """Make a file for the events of one Slurm job; no other one has it."""
    folder = job.request.results / FOLDER / "events"
    make_folder(folder)
    return folder / f"{job.run_id}-{time.time_ns()}.jsonl"


def write_note(job: Job, note: Note) -> None:
    """Save it for the next driver."""
    text = json.dumps({"job": note.slurm_job, "events": note.events.name})
    write_atomic(_place(job), text + "\n")


def read_note(job: Job) -> Note | None:
    """Return the last Slurm job of a job; ``None``: there is none, or its note is corrupt."""
    try:
        document = json.loads(_place(job).read_text(encoding="utf-8"))
        slurm_job, name = str(document["job"]), Path(str(document["events"])).name
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Note(slurm_job, job.request.results / FOLDER / "events" / name)


def read_events(file: Path, begin: int) -> tuple[list[Event], int]:
    """The events from byte ``begin`` on, whole lines only, and where the next ones will begin."""
    try:
        with file.open("rb") as lines:
            lines.seek(begin)
            text = lines.read()
    except FileNotFoundError:
        return [], begin
    whole = text[: text.rfind(b"\n") + 1]
    found: list[Event] = []
    for line in whole.splitlines():
        try:
            found.append(event_from_json(line))
        except ValueError:
            continue
    return found, begin + len(whole)


def last_words(results: Path, slurm_job: str) -> str:
    """The last line that a job printed, and where the rest is."""
    for file in sorted(jobs_folder(results).glob(f"{slurm_job}_*.err")):
        lines = [line for line in file.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        if lines:
            return f"{printable(lines[-1])[:500]} ({file})"
    return f"it printed nothing (see {jobs_folder(results)})"


def _place(job: Job) -> Path:
    return job.request.results / FOLDER / "notes" / f"{job.run_id}.json"
