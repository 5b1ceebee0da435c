"""Interface of loggers, which write runs down for another program, and the values that they are given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from seu_bench.config.options import Options


@dataclass(frozen=True)
class LoggedRun:
    """A run that starts or is resumed, as passed to loggers.

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
        """The last step that an earlier process logged under ``name`` for this attempt; ``None``: there is none.

        Called once for each name; steps up to it are not logged again.
        """

    def log(self, measured: LoggedValues) -> None:
        """Write numbers so that they are not lost if the process is killed."""

    def end(self, status: str) -> None:
        """Close the log of a run that is ``finished``, ``failed`` or ``interrupted``; the last two may be resumed."""


class LoggerFactory(Protocol):
    """A logger: writes runs down for another program (``--log NAME``)."""

    summary: str
    options: type[Options]

    def build(self, options: Any, folder: Path) -> RunLogger:
        """A logger for one run; imports what it needs.

        Args:
            folder: ``<results>/logs/<name>``, where it writes unless its options say otherwise; not made yet.

        Raises:
            RequestError: it cannot be had with these options.
        """
