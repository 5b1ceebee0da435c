"""Every error that seu-bench raises on purpose.

::

    SeuBenchError                 what happened, where, what to do; the command line prints it and exits with 2
    ├── RequestError              the request itself cannot be met
    │   ├── UnknownNameError      no strategy, benchmark, ... of that name
    │   ├── OptionError           an option is unknown or its value does not fit
    │   └── SpecError             a benchmark file is missing or has faults (all of them are listed)
    ├── DataError                 a data set cannot be used
    │   ├── DataMissingError       it is not where it was looked for
    │   └── DataCorruptError      it is there and is not what it should be
    ├── PluginError               an installed plugin is broken
    ├── ResultsError              the results folder or a record in it cannot be used
    │   ├── RunHeldError          another process is making this run
    │   ├── NewerRecordError      a later version of seu-bench wrote the record
    │   └── CheckpointError       a checkpoint is damaged, another run's, or does not fit
    └── RunError                  a run began and could not be finished

Anything else that escapes is a defect of seu-bench or of a plugin.
"""

from __future__ import annotations

from collections.abc import Sequence


class SeuBenchError(Exception):
    """Base of the tree.

    Args:
        what: what happened, one line.
        where: the file, option or name concerned.
        remedy: what the reader can do about it.
    """

    def __init__(self, what: str, *, where: str | None = None, remedy: str | None = None) -> None:
        self.what = what
        self.where = where
        self.remedy = remedy
        lines = [what]
        if where:
            lines.append(f"  where: {where}")
        if remedy:
            lines.append(f"  to do: {remedy}")
        super().__init__("\n".join(lines))


class RequestError(SeuBenchError):
    """What was asked for cannot be done."""


class UnknownNameError(RequestError):
    """A name that nobody registered."""


class OptionError(RequestError):
    """An unknown option, or a value that does not fit it."""


class SpecError(RequestError):
    """A benchmark file that is missing, is not TOML, or has faults.

    Args:
        what: what happened, one line.
        faults: every fault found, one line each.
        where: the file.
        remedy: what the reader can do about it.
    """

    def __init__(
        self, what: str, *, faults: Sequence[str] = (), where: str | None = None, remedy: str | None = None
    ) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join([what, *(f"  - {fault}" for fault in faults)]), where=where, remedy=remedy)


class DataError(SeuBenchError):
    """A data set cannot be used."""


class DataMissingError(DataError):
    """A data set is not in the folder that was looked in."""


class DataCorruptError(DataError):
    """A data file is there but is not what it should be."""


class PluginError(SeuBenchError):
    """An installed plugin cannot be loaded or breaks its contract."""


class ResultsError(SeuBenchError):
    """The results folder, or a record in it, cannot be read or written."""


class RunHeldError(ResultsError):
    """Another process is making this run; two at once would write over each other."""


class NewerRecordError(ResultsError):
    """A record has a schema that only a later version of seu-bench knows; it may be read by that, not replaced."""


class CheckpointError(ResultsError):
    """A checkpoint cannot be gone on from."""


class RunError(SeuBenchError):
    """A run began and could not be finished."""


class Interruption(KeyboardInterrupt):
    """A run was told to stop, by a signal or by its time limit. No ``except Exception`` of a plugin can swallow it.

    Args:
        reason: for the record and for the user.
        status: the exit status to leave with.
    """

    def __init__(self, reason: str, status: int) -> None:
        self.reason = reason
        self.status = status
        super().__init__(reason)
