"""Every error that seu-bench raises on purpose; any other exception is a defect of seu-bench or of a plugin.

Example::

    raise OptionError("option 'rate' must be positive", where="-o rate=-1", remedy="give a rate above 0")
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import ClassVar


class ExitStatus(IntEnum):
    """Exit statuses of the command ``seu-bench``."""

    DONE = 0  #: Everything that was asked for, or it had been done before.
    NOT_MET = 1  #: A check failed, jobs of a sweep are not finished, or nobody read to the end what was printed.
    REFUSED = 2  #: The request cannot be met; of a run, nothing was learned.
    FAILED = 3  #: A run failed while it learned, because its loss became NaN, say, or the strategy raised.
    DEFECT = 70  #: An error that nobody foresaw, with a traceback: EX_SOFTWARE. Python's own 1 would mean NOT_MET.
    OUT_OF_TIME = 75  #: A run came to its time limit: EX_TEMPFAIL of sysexits.h, "try again later".
    HUNG_UP = 129  #: 128 and the number of the signal, as shells have it.
    INTERRUPTED = 130
    TERMINATED = 143


class SeuBenchError(Exception):
    """Base of all errors: what happened, where (file, option or name), and what the reader can do about it."""

    #: Of the command that ends with this error.
    exit_status: ClassVar[ExitStatus] = ExitStatus.REFUSED

    def __init__(self, what: str, *, where: str | None = None, remedy: str | None = None) -> None:
        self.what, self.where, self.remedy = what, where, remedy
        lines = (what, where and f"  where: {where}", remedy and f"  hint: {remedy}")
        super().__init__("\n".join(line for line in lines if line))


class RequestError(SeuBenchError):
    """An invalid request."""


class UnknownNameError(RequestError):
    """A name that is not registered."""


class OptionError(RequestError):
    """An unknown option, or a value that does not fit it."""


class ScenarioError(RequestError):
    """A strategy that cannot learn a benchmark's scenario."""


class SpecError(RequestError):
    """A benchmark file that is missing, is not TOML, or is invalid; ``faults`` are all that were found, a line each."""

    def __init__(self, what: str, *, faults: Sequence[str] = (), **hints: str | None) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join([what, *(f"  - {fault}" for fault in faults)]), **hints)


class DataError(SeuBenchError):
    """A data set cannot be used."""


class DataMissingError(DataError):
    """Files of a data set are missing."""


class DataCorruptError(DataError):
    """Files of a data set are corrupt."""


class PluginError(SeuBenchError):
    """An installed plugin cannot be loaded or breaks its contract."""


class ResultsError(SeuBenchError):
    """The results folder, or a record in it, cannot be read or written."""


class RunLockedError(ResultsError):
    """Another process is making this run; two at once would overwrite each other."""


class NewerRecordError(ResultsError):
    """A record has a schema that only a later version of seu-bench knows."""


class CheckpointError(ResultsError):
    """A run cannot be resumed from a checkpoint."""


class RunError(SeuBenchError):
    """A run failed."""

    exit_status = ExitStatus.FAILED


class Interruption(KeyboardInterrupt):
    """A run was asked to stop, by a signal or by its time limit. No ``except Exception`` of a plugin can swallow it."""

    def __init__(self, reason: str, exit_code: int) -> None:
        self.reason, self.exit_code = reason, exit_code
        super().__init__(reason)
