"""Executor ``in_turn``: run the jobs of a sweep one after another, in the process of the sweep itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from seu_bench import hookimpl
from seu_bench.config import Options
from seu_bench.plugin import Ended, Event, Executor, ExecutorFactory, Job, Started
from seu_bench.sweeps import run_job

if TYPE_CHECKING:
    from seu_bench.plugin import Register


class InTurn:
    """Run one job in each call of ``wait``."""

    slots = 1

    def __init__(self) -> None:
        self.jobs: deque[Job] = deque()
        self.events: list[Event] = []

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue the jobs."""
        self.jobs.extend(jobs)

    def wait(self, seconds: float) -> Sequence[Event]:
        """Run the next job and return its events."""
        events, self.events = self.events, []
        if not events and self.jobs:
            job = self.jobs.popleft()
            events.append(Started(run_id=job.run_id))
            events.append(run_job(job))
        return events

    def cancel(self) -> None:
        """Drop the jobs that have not started."""
        self.events += [Ended(run_id=job.run_id, status="interrupted") for job in self.jobs]
        self.jobs.clear()

    def close(self) -> None:
        """Do nothing: no job is running."""


class InTurnFactory:
    """Factory of the executor, without options."""

    summary = "one job after another, in the process of the sweep"
    options = Options
    detaches = False

    def build(self, options: Options, device: str, threads: int) -> Executor:
        """Return the executor."""
        return InTurn()


@hookimpl
def register_executors(register: Register[ExecutorFactory]) -> None:
    """Register ``in_turn``."""
    register("in_turn", InTurnFactory())
