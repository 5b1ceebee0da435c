"""States of all runs of a results folder, look after look, of which only what changed is read again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from seu_bench.engine.run_folder import RunState, find_state
from seu_bench.engine.run_progress import RunProgress, read_progress
from seu_bench.errors import ResultsError
from seu_bench.results.record import RECORD_NAME, runs_folder
from seu_bench.results.record_files import record_in
from seu_bench.results.record_index import Summary, read_summaries, summarized
from seu_bench.utils.locks import LEASE, LOCK_NAME
from seu_bench.utils.reading import list_folder

#: Seconds without a sign of life from another host after which a run there counts as ended. A lease a third longer, as
#: its clock and ours are two.
_SILENCE: Final = LEASE * 4 / 3
#: The same by the clock of the file server, which may be minutes off.
_LONG_SILENCE: Final = 600.0


@dataclass(frozen=True)
class WatchedRun:
    """A run as it was seen last.

    Attributes:
        state: of its folder.
        progress: of a run that is not finished; ``None``: it says none.
        changed: Unix time of the last change of its record, or else of its folder.
        may_move: whether it may change without its folder's time: its process may end, or give a sign of life again.
    """

    state: RunState
    progress: RunProgress | None
    changed: float
    may_move: bool


class FolderStates:
    """States of the runs below a results folder.

    A folder whose time did not change since the last look is as it was: every file in it is replaced, made or removed,
    and never written in place. Only runs that are being made are looked at each time.

    Args:
        results: the results folder, which need not exist yet.
        clock: seconds from any start.
    """

    def __init__(self, results: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._results = results
        self._clock = clock
        self._seen: dict[str, tuple[int, WatchedRun | None]] = {}
        self._records: dict[str, tuple[tuple[int, ...], Summary]] = {}
        #: Of runs on other hosts: state of the lock, and since when it is that.
        self._signs: dict[str, tuple[tuple[int, ...], float]] = {}

    def look(self) -> dict[str, WatchedRun]:
        """Return every run by the name of its folder.

        Raises:
            ResultsError: the folder of runs cannot be read.
        """
        folders = list_folder(runs_folder(self._results))
        if not self._seen and folders:
            self._read_index()
        found: dict[str, tuple[int, WatchedRun | None]] = {}
        for folder in folders:
            try:
                time_ns = os.lstat(folder).st_mtime_ns
            except OSError:
                continue  # removed meanwhile
            known = self._seen.get(folder.name)
            if known is not None and known[0] == time_ns and known[1] is not None and not known[1].may_move:
                found[folder.name] = known
            else:
                found[folder.name] = (time_ns, self._state(folder))
        self._seen = found
        self._records = {name: entry for name, entry in self._records.items() if name in found}
        return {name: run for name, (_, run) in found.items() if run is not None}

    def _read_index(self) -> None:
        """Read all records at once, by their index if there is one."""
        folder = runs_folder(self._results)
        stamps = {path.name: _stamp(path / RECORD_NAME) for path in list_folder(folder)}
        for summary in read_summaries(self._results, renew=False):
            stamp = stamps.get(summary.name)
            if stamp is not None:
                self._records[summary.name] = (stamp, summary)

    def _state(self, folder: Path) -> WatchedRun | None:
        summary, stamp = self._summary(folder)
        try:
            state = find_state(self._results, folder.name, summary)
        except ResultsError as error:  # its folder of checkpoints cannot be read
            state = RunState(folder.name, "unreadable", None, None, 0, None, error.what)
        if state is None:
            return None
        may_move = state.state == "running"
        if may_move and self._is_silent(folder, state):
            detail = f"{state.holder} is no longer alive"
            state = replace(state, state="interrupted", holder=None, detail=detail)
        changed = stamp[1] / 1e9 if stamp is not None else _time_of(folder)
        return WatchedRun(state, None if state.state == "finished" else read_progress(folder), changed, may_move)

    def _summary(self, folder: Path) -> tuple[Summary | None, tuple[int, ...] | None]:
        """The run's record, and the state of its file."""
        stamp, known = _stamp(folder / RECORD_NAME), self._records.get(folder.name)
        if known is not None and known[0] == stamp:
            return known[1], stamp
        self._records.pop(folder.name, None)
        record = record_in(folder) if stamp is not None else None
        if stamp is None or record is None:
            return None, None
        if isinstance(record, ResultsError):
            summary = Summary(folder.name, record, 0)
        else:
            summary = summarized(folder.name, record)
        self._records[folder.name] = (stamp, summary)
        return summary, stamp

    def _is_silent(self, folder: Path, state: RunState) -> bool:
        """Whether the process of another host, which cannot be asked, has given no sign of life for long."""
        marker = _stamp(folder / LOCK_NAME)
        if marker is None or state.holder is None or state.holder.alive is not None:
            return False
        before, since = self._signs.get(folder.name, (None, 0.0))
        if before != marker:
            self._signs[folder.name] = (marker, self._clock())
            return time.time() - marker[1] / 1e9 > _LONG_SILENCE
        return self._clock() - since > _SILENCE or time.time() - marker[1] / 1e9 > _LONG_SILENCE


def _stamp(path: Path) -> tuple[int, ...] | None:
    """The state of a file, which changes when it is replaced; the second part is its time."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _time_of(folder: Path) -> float:
    try:
        return os.lstat(folder).st_mtime
    except OSError:
        return 0.0
