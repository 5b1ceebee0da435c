"""Executors: the interface of what runs the jobs of a sweep, its jobs and its events.

No torch here: a plugin's outer module may import this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias

from seu_bench.config.options import Frozen, Options
from seu_bench.config.run import Request


class Job(Frozen):
    """One run of a sweep; ``model_dump_json`` and ``model_validate_json`` carry it to another process or host.

    A process where ``request``, whose paths are absolute, has another ``run_id`` has other versions or data, and must
    not run it.
    """

    run_id: str
    request: Request


class Started(Frozen):
    """A job has started, ``where`` there are several on a device or host, e.g. ``cuda 3``."""

    kind: Literal["started"] = "started"
    run_id: str
    where: str = ""


class Noticed(Frozen):
    """A notice for the user, e.g. that a lost job starts again."""

    kind: Literal["noticed"] = "noticed"
    run_id: str
    message: str


#: ``finished``: there is a finished record. ``failed``: the run was refused or failed; ``message`` says why.
#: ``interrupted``: it was asked to stop, or never started. ``held``: another process runs it.
#: ``lost``: its process is gone without a word, e.g. killed for memory.
Ending: TypeAlias = Literal["finished", "failed", "interrupted", "held", "lost"]


class Ended(Frozen):
    """A job has ended, for this sweep."""

    kind: Literal["ended"] = "ended"
    run_id: str
    status: Ending
    message: str = ""


#: Events of a job, distinguished by ``kind``.
Event: TypeAlias = Started | Noticed | Ended


class Executor(Protocol):
    """Runs jobs, several at once, by :func:`seu_bench.sweeps.run_job` on any host that sees the same folders.

    Used from one thread.
    """

    @property
    def slots(self) -> int | None:
        """Jobs at once, for the estimated time; ``None``: not known."""

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue jobs, to be started in this order; returns at once. Called once.

        Where ``detaches`` says that jobs outlive the driver: a job that runs for an earlier driver (by run id) is
        followed, and not started a second time.
        """

    def wait(self, seconds: float) -> Sequence[Event]:
        """Return the events since the last call, in their order: as soon as there are any, after ``seconds`` at most.

        Exactly one :class:`Ended` comes for each job that was submitted, and nothing of that job after it.
        """

    def cancel(self) -> None:
        """Start no more jobs and ask running ones to stop at their next checkpoint; returns at once.

        :meth:`wait` still returns how they end; those that never started end as ``interrupted``.
        """

    def close(self) -> None:
        """Release everything; called once, at the end, whatever happened. Jobs that do not detach are ended."""


class ExecutorFactory(Protocol):
    """A way to run the jobs of a sweep.

    Attributes:
        summary: one line for ``seu-bench list``.
        options: the class of its options, set by ``-o executor.KEY=VALUE``; one called ``jobs`` also by ``--jobs``.
        detaches: whether jobs outlive the driver. Then a driver that is interrupted closes the executor without
            cancelling, and the same command follows what runs.
    """

    summary: str
    options: type[Options]
    detaches: bool

    def build(self, options: Any, device: str, threads: int) -> Executor:
        """Return the executor, or raise a RequestError where it cannot be used; starts no job.

        Args:
            options: an instance of ``options``.
            device: as given with ``--device``; every job's request says it, too.
            threads: cores to reserve for each job, unless the options say otherwise.
        """
