"""Interface of loggers, which write runs down for another program, and the values that they are given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from seu_bench.config.options import Options


@dataclass(frozen=True)
class LoggedRun:
    """A run that starts or is resumed.

    Attributes:
        attempt: ``<run id>/<when it was begun from nothing>``. A resumed run has the same one; one that starts
            over (``--restart``) has another, and is to have a log of its own.
        parameters: strategy, benchmark, options, settings, seed, ...: flat, as plain values.
        tags: short texts to find the run by.
    """

    run_id: str
    attempt: str
    parameters: Mapping[str, str | int | float | bool]
    tags: Mapping[str, str]


@dataclass(frozen=True)
class LoggedValues:
    """Finite numbers that were measured together.

    Attributes:
        values: by name; parts of a name are divided by ``/``, and have letters, digits, ``_``, ``-`` and blanks.
        axis: what ``step`` counts, e.g. ``training/task-0/epoch``.
        step: where on that axis the numbers belong; grows from call to call for each name.
        position: epochs of all stages so far; never falls, also when a run is resumed.
    """

    values: Mapping[str, float]
    axis: str
    step: int
    position: int


class RunLogger(Protocol):
    """Writes one run down. An exception switches it off for the rest of the run, which continues."""

    def begin(self, run: LoggedRun) -> None:
        """Open the log of a run that begins, or is resumed with an attempt that may be in the log already."""

    def last_step(self, name: str) -> int | None:
        """Last step that an earlier process logged under ``name`` for this attempt; what is new is logged."""

    def log(self, measured: LoggedValues) -> None:
        """Write numbers so that they are not lost if the process is killed."""

    def end(self, status: str) -> None:
        """Close the log of a run that is ``finished``, ``failed`` or ``interrupted``; the last two may be resumed."""


class LoggerFactory(Protocol):
    """A logger (``--log NAME``). One with ``is_remote(options)`` that is true is called in a thread of its own.

    ``build`` is given the folder ``<results>/logs/<name>``, where it writes unless its options say otherwise, and which
    is not made yet; it raises a RequestError where the options do not fit.
    """

    summary: str
    options: type[Options]

    def build(self, options: Any, folder: Path) -> RunLogger:
        """Return a logger for one run; imports what it needs."""
