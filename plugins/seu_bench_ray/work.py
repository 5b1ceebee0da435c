"""Work of Ray's workers: one job, and the actor that carries events to the driver and its stop request back."""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from seu_bench.engine.stopping import StopRequest
from seu_bench.errors import ExitStatus, Interruption
from seu_bench.plugin.executors import Ended, Event, Job, Started

#: Seconds between two questions whether to stop.
_ASK: Final = 1.0


class Mailbox:
    """The actor: keeps events of jobs until the driver takes them."""

    def __init__(self) -> None:
        self._events: list[str] = []
        self._stops = False

    def notify(self, event: str) -> None:
        """Put an event, as JSON."""
        self._events.append(event)

    def take(self) -> list[str]:
        """Return the events since the last call."""
        events, self._events = self._events, []
        return events

    def stop(self) -> None:
        """Ask all jobs to stop at their next checkpoint."""
        self._stops = True

    def stops(self) -> bool:
        """Whether jobs were asked to stop."""
        return self._stops


@dataclass(frozen=True)
class Assignment:
    """Arguments of a worker.

    Attributes:
        job: as JSON.
        versions: of the driver's packages; a worker that has others must not run the job.
        mark: a file in the results folder, by which a worker knows that its folder is the driver's.
    """

    job: str
    versions: dict[str, str]
    mark: str


def run_assigned(assignment: Assignment, mailbox: Any) -> str:
    """Run the job in this process; returns how it ended, as JSON."""
    import ray

    job = Job.model_validate_json(assignment.job)
    sent: list[Any] = []

    def notify(event: Event) -> None:
        sent[:] = [mailbox.notify.remote(event.model_dump_json())]  # one actor's calls from one caller keep their order

    notify(Started(run_id=job.run_id, where=socket.gethostname()))
    fault = find_fault(assignment, job)
    if fault is not None:
        ended = Ended(run_id=job.run_id, status="failed", message=fault)
    else:
        ended = _run(job, notify, mailbox)
    ray.get(sent)  # all has arrived before the end is known
    return ended.model_dump_json()


def _run(job: Job, notify: Any, mailbox: Any) -> Ended:
    from seu_bench.sweeps import run_job

    stop, over = StopRequest(), threading.Event()
    watch = threading.Thread(target=_watch, args=(mailbox, stop, over), daemon=True)
    watch.start()
    try:
        return run_job(job, notify, stop)
    finally:
        over.set()
        watch.join()


def _watch(mailbox: Any, stop: StopRequest, over: threading.Event) -> None:
    """Poll for a request to stop until the job is over."""
    import ray
    from ray.exceptions import RayError

    while not over.wait(_ASK):
        try:
            stops = ray.get(mailbox.stops.remote())
        except RayError:
            stops = True  # the driver is gone
        if stops:
            stop.ask(Interruption("stopped with its sweep", ExitStatus.TERMINATED))
            return


def find_fault(assignment: Assignment, job: Job) -> str | None:
    """Return why this worker must not run the job; ``None``: it may."""
    from seu_bench.engine.environment import installed_versions

    here = installed_versions()
    other = [
        f"{name} {here.get(name, 'none')} in place of {version}"
        for name, version in assignment.versions.items()
        if here.get(name) != version
    ]
    host = socket.gethostname()
    if other:
        return f"the worker on {host} has other versions than the sweep's own process: {', '.join(other)}"
    if not Path(assignment.mark).exists():
        return f"the results folder {job.request.results} is not shared with {host}: it is another one there"
    return None
