"""What runs on Ray's workers: a job, and the actor that all jobs tell and that tells them to stop."""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from seu_bench.engine.stopping import StopRequest
from seu_bench.errors import Interruption
from seu_bench.plugin.executors import Ended, Event, Job, Started

#: Seconds between two questions whether to stop.
_ASK: Final = 1.0


class Mailbox:
    """The actor: keeps what jobs tell until the driver takes it."""

    def __init__(self) -> None:
        self._told: list[str] = []
        self._stops = False

    def tell(self, event: str) -> None:
        """An event, as JSON."""
        self._told.append(event)

    def take(self) -> list[str]:
        """What was told since the last call."""
        told, self._told = self._told, []
        return told

    def stop(self) -> None:
        """Have all jobs stop where nothing is lost."""
        self._stops = True

    def stops(self) -> bool:
        """Whether they are to."""
        return self._stops


@dataclass(frozen=True)
class Asked:
    """What a worker needs to make a job.

    Attributes:
        job: as JSON.
        versions: of the driver's packages; who has others must not make the job.
        mark: a file in the results folder, by which a worker knows that its folder is the driver's.
        threads: to compute with.
    """

    job: str
    versions: dict[str, str]
    mark: str
    threads: int


def make_asked(asked: Asked, mailbox: Any) -> str:
    """Make a job in this process; how it ended, as JSON."""
    import ray

    job = Job.model_validate_json(asked.job)
    sent: list[Any] = []

    def tell(event: Event) -> None:
        sent[:] = [mailbox.tell.remote(event.model_dump_json())]  # one actor's calls from one caller keep their order

    tell(Started(run_id=job.run_id, where=socket.gethostname()))
    fault = fault_here(asked, job)
    if fault is not None:
        ended = Ended(run_id=job.run_id, status="failed", message=fault)
    else:
        ended = _made(asked, job, tell, mailbox)
    ray.get(sent)  # all has arrived before the end is known
    return ended.model_dump_json()


def _made(asked: Asked, job: Job, tell: Any, mailbox: Any) -> Ended:
    import torch

    from seu_bench.sweeps import run_job

    torch.set_num_threads(asked.threads)
    stop, over = StopRequest(), threading.Event()
    watch = threading.Thread(target=_watch, args=(mailbox, stop, over), daemon=True)
    watch.start()
    try:
        return run_job(job, tell, stop)
    finally:
        over.set()
        watch.join()


def _watch(mailbox: Any, stop: StopRequest, over: threading.Event) -> None:
    """Ask until the job is made."""
    import ray
    from ray.exceptions import RayError

    while not over.wait(_ASK):
        try:
            stops = ray.get(mailbox.stops.remote())
        except RayError:
            stops = True  # the driver is gone
        if stops:
            stop.ask(Interruption("stopped with its sweep", 143))
            return


def fault_here(asked: Asked, job: Job) -> str | None:
    """Why this worker must not make the job."""
    from seu_bench.engine.environment import installed_versions

    here = installed_versions()
    other = [
        f"{name} {here.get(name, 'none')} in place of {version}"
        for name, version in asked.versions.items()
        if here.get(name) != version
    ]
    host = socket.gethostname()
    if other:
        return f"the worker on {host} has other versions than the sweep's own process: {', '.join(other)}"
    if not Path(asked.mark).exists():
        return f"the results folder {job.request.results} is not shared with {host}: it is another one there"
    return None
