"""Shared by the tests of Ray and Slurm: jobs of the stranger's strategy, and their expected results."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.commands import Install
from support.sweeping import MODULES, POINTS, tiny_plan

from seu_bench.engine.run_folder import find_state
from seu_bench.results.record import Record, read_record
from seu_bench.results.record_files import read_records
from seu_bench.results.record_metrics import without_times

#: Jobs that take a second, with a checkpoint after each epoch.
TINY = ("--strategy", "tiny", "--protocol", "smoke", "--device", "cpu", "--checkpoint-every", "0")
#: What is only true of the process that made a record.
_OF_PROCESS = ("process", "threads", "gpu")


def stranger(install: Install, patch: pytest.MonkeyPatch, gate: Path) -> None:
    """The stranger's package, found by other processes too; jobs wait at files ``seed0``, ... in the folder."""
    folder = install("a-stranger", POINTS, MODULES)
    patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
    patch.setenv("GATE", str(gate))


def sweep(results: Path, seeds: str, *more: str) -> subprocess.Popen[str]:
    """A sweep as a process of its own."""
    command = [sys.executable, "-m", "seu_bench.cli.main", "sweep", *TINY, "--seeds", seeds, "--results", str(results)]
    return subprocess.Popen([*command, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run_ids(results: Path, seeds: str) -> list[str]:
    """Of the sweep's jobs, by seed."""
    return [job.run_id for job in tiny_plan(results, seeds).jobs]


def stands_at_the_gate(results: Path, run_id: str) -> bool:
    """Whether a job has learned its first task, after which it waits."""
    path = results / "runs" / run_id / "record.json"
    if not path.exists():
        return False
    record = read_record(path.parent)
    return record.status == "running" and len(record.params_total) == 1


def maker(results: Path, run_id: str) -> int | None:
    """The process that makes a job."""
    state = find_state(results, run_id)
    return state.holder.pid if state is not None and state.holder is not None else None


def finished(results: Path) -> dict[str, int]:
    """The records of finished runs, and when they were written."""
    paths = {path.parent.name: path for path in (results / "runs").glob("*/record.json")}
    return {name: path.stat().st_mtime_ns for name, path in paths.items() if read_record(path).status == "finished"}


def same_as_local(results: Path, local: Path) -> Sequence[str]:
    """The run ids of finished records that say the same as those made in one process here, and those that do not."""
    theirs, ours = _records(results), _records(local)
    assert theirs.keys() == ours.keys()
    return [run_id for run_id in theirs if theirs[run_id] != ours[run_id]]


def _records(results: Path) -> dict[str, dict[str, object]]:
    found = [record for record in read_records(results) if isinstance(record, Record)]
    assert {record.status for record in found} == {"finished"}
    return {record.run_id: _lasting(record) for record in found}


def _lasting(record: Record) -> dict[str, object]:
    document = without_times(record)
    for name in _OF_PROCESS:
        document["metrics"].pop(name, None)
    for name in ("environment", "earlier_environments"):
        del document[name]
    return document
