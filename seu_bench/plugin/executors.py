"""Executors: what makes the jobs of a sweep, what it is given and what it tells.

No torch here: a plugin's outer module may import this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Protocol, TypeAlias

from pydantic import Field, TypeAdapter

from seu_bench.config.options import Frozen, Options
from seu_bench.config.run import Request


class Job(Frozen):
    """One run of a sweep; ``model_dump_json`` and ``model_validate_json`` carry it to another process or host.

    Attributes:
        run_id: what ``request`` resolves to. Who resolves it elsewhere and gets another one has other versions or
            other data, and must not make it.
        request: its paths are absolute.
    """

    run_id: str
    request: Request


class Started(Frozen):
    """A job has its place and begins.

    Attributes:
        where: the place in a few words, e.g. ``cuda 3`` or a host's name; empty where there is but one.
    """

    kind: Literal["started"] = "started"
    run_id: str
    where: str = ""


class Progressed(Frozen):
    """Where a job stands.

    Attributes:
        task: 0-based.
        epoch: epochs of the stage that are done, of ``epochs``.
        passed, planned: image passes of the whole run, those of an earlier attempt that it goes on with included.
        remaining: seconds until it is finished; ``None``: it cannot be told yet.
    """

    kind: Literal["progressed"] = "progressed"
    run_id: str
    task: int
    tasks: int
    stage: str
    epoch: int
    epochs: int
    passed: int
    planned: int
    remaining: float | None = None


class Noticed(Frozen):
    """What whoever waits for a job should know, e.g. that it goes on from a checkpoint."""

    kind: Literal["noticed"] = "noticed"
    run_id: str
    message: str


#: ``finished``: there is a finished record. ``failed``: the run was refused or failed; ``message`` says why.
#: ``interrupted``: it was told to stop, or never began. ``held``: another process is making this run.
#: ``lost``: whatever made it is gone without a word, e.g. killed for memory.
Ending: TypeAlias = Literal["finished", "failed", "interrupted", "held", "lost"]


class Ended(Frozen):
    """A job is over, for this sweep."""

    kind: Literal["ended"] = "ended"
    run_id: str
    status: Ending
    message: str = ""


#: What an executor tells of a job, told apart by ``kind``.
Event: TypeAlias = Started | Progressed | Noticed | Ended


def event_from_json(text: str | bytes) -> Event:
    """The event that ``model_dump_json`` wrote.

    Raises:
        ValueError: it is none.
    """
    event: Event = TypeAdapter(Annotated[Event, Field(discriminator="kind")]).validate_json(text)
    return event


class Executor(Protocol):
    """Makes jobs, several at once. Used from one thread.

    A job is made by :func:`seu_bench.sweeps.worker.run_job`, in whichever process on whichever host; results and
    data folders are the same for all.
    """

    @property
    def slots(self) -> int | None:
        """Jobs at once, for the estimated time; ``None``: it is not known."""

    def submit(self, jobs: Sequence[Job]) -> None:
        """Take jobs on, to be begun in this order; returns at once.

        Called once. A job that is being made for an earlier driver (by run id) is taken up as it stands and not begun
        a second time: so a driver that was closed is attached again, where ``detaches`` says that jobs outlive it.
        """

    def wait(self, seconds: float) -> Sequence[Event]:
        """What happened since the last call, in its order: as soon as there is something, after ``seconds`` at most.

        Exactly one :class:`Ended` comes for each job that was submitted, and nothing of that job after it.
        """

    def cancel(self) -> None:
        """Begin no job any more and tell those that run to stop where nothing is lost; returns at once.

        :meth:`wait` goes on telling how they end; those that never began end as ``interrupted``.
        """

    def close(self) -> None:
        """The driver leaves; called once, at the end, whatever happened. What may not outlive it is ended at once."""


class ExecutorFactory(Protocol):
    """A way to make the jobs of a sweep.

    Attributes:
        summary: one line for ``seu-bench list``.
        options: the class of its options, set by ``-o executor.KEY=VALUE``: what a job is given, and where. An option
            ``jobs`` is also set by ``--jobs``.
        detaches: whether jobs go on when the driver leaves. Then a driver that is interrupted closes the executor
            without cancelling, and the same command attaches to what runs.
    """

    summary: str
    options: type[Options]
    detaches: bool

    def build(self, options: Any, device: str) -> Executor:
        """The executor; begins nothing.

        Args:
            device: what ``--device`` says, which every job's execution says, too.

        Raises:
            RequestError: it cannot be used here.
        """
