"""The executor: jobs as tasks of Ray, which begins those of lost workers again."""

from __future__ import annotations

import contextlib
import logging
import math
import socket
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

import ray
from ray.exceptions import RayError, RayTaskError, TaskCancelledError

from seu_bench.engine.environment import installed_versions
from seu_bench.errors import RequestError
from seu_bench.plugin.executors import Ended, Event, Job, Started
from seu_bench.sweeps import run_job, with_share
from seu_bench.utils.files import make_folder, write_atomic
from seu_bench.utils.hardware import usable_cores
from seu_bench.utils.text import printable
from seu_bench_ray.options import RayOptions

#: Seconds within which an address must answer.
_ANSWER: Final = 5.0
#: Seconds that jobs have to stop when the driver leaves; they need two and the time of writing a checkpoint.
_PATIENCE: Final = 10.0
_REMEDY: Final = (
    "start Ray there (ray start --head), give the address that it names, or leave the address out to use this machine"
)


class RayExecutor:
    """Jobs as tasks, with these options, ``--device`` and ``--threads``.

    Raises:
        RequestError: the address does not answer, or no machine has room for a job.
    """

    def __init__(self, options: RayOptions, device: str, threads: int) -> None:
        self._is_ours = _connect(options.address)
        try:
            has_gpu = ray.cluster_resources().get("GPU", 0.0) > 0
            wants_gpu = device.startswith("cuda") or (device == "auto" and has_gpu)
            gpus = float(wants_gpu) if options.gpus is None else options.gpus
            cpus = float(threads) if options.cpus is None else options.cpus
            room = _room(cpus, gpus)
        except BaseException:
            self._leave()
            raise
        self.slots = min(options.jobs or room, room)
        self._task: Any = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=options.retries)(run_assigned)
        self._versions = installed_versions()
        self._mark: Path | None = None
        self._waiting: deque[Job] = deque()
        self._running: dict[Any, Job] = {}
        self._events: list[Event] = []

    def submit(self, jobs: Sequence[Job]) -> None:
        """Begin as many as there is room for."""
        machines = max(1, sum(bool(node["Alive"]) for node in ray.nodes()))
        self._waiting.extend(with_share(job, max(1, math.ceil(self.slots / machines))) for job in jobs)
        for job in jobs[:1]:
            make_folder(job.request.results)
            self._mark = job.request.results / f".sweep-{uuid4().hex}"
            write_atomic(self._mark, "")
        self._fill()

    def wait(self, seconds: float) -> Sequence[Event]:
        """Return events as soon as there are any."""
        ready: list[Any] = []
        if self._running:
            ray.wait(list(self._running), num_returns=1, timeout=0 if self._events else seconds)
            ready, _ = ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
        self._events += [self._end(reference) for reference in ready]
        self._fill()
        events, self._events = self._events, []
        return events

    def cancel(self) -> None:
        """Interrupt all jobs; what they learned since their last checkpoint is learned again."""
        self._events += [_not_started(job) for job in self._waiting]
        self._waiting.clear()
        for reference in self._running:
            ray.cancel(reference)

    def close(self) -> None:
        """Interrupt what still runs, and end what does not stop."""
        try:
            with contextlib.suppress(RayError):
                for reference in self._running:
                    ray.cancel(reference)
                if self._running:
                    ray.wait(list(self._running), num_returns=len(self._running), timeout=_PATIENCE)
                for reference in self._running:
                    ray.cancel(reference, force=True)
        finally:
            if self._mark is not None:
                self._mark.unlink(missing_ok=True)
            self._leave()

    def _fill(self) -> None:
        while self._waiting and len(self._running) < self.slots:
            job = self._waiting.popleft()
            reference = self._task.remote(job.model_dump_json(), self._versions, str(self._mark))
            self._running[reference] = job
            self._events.append(Started(run_id=job.run_id))

    def _end(self, reference: Any) -> Ended:
        job = self._running.pop(reference)
        try:
            return Ended.model_validate_json(ray.get(reference))
        except TaskCancelledError:
            return Ended(run_id=job.run_id, status="interrupted", message="stopped with its sweep")
        except RayTaskError as error:  # what the worker raised: it has not even the modules, or a defect
            return Ended(run_id=job.run_id, status="failed", message=_last_line(error))
        except RayError as error:
            return Ended(run_id=job.run_id, status="lost", message=f"its worker was lost: {_last_line(error)}")

    def _leave(self) -> None:
        if self._is_ours:
            ray.shutdown()


def run_assigned(job: str, versions: Mapping[str, str], mark: str) -> str:
    """Run a job in a worker; it is given, and its end returned, as JSON."""
    asked = Job.model_validate_json(job)
    fault = find_fault(asked, versions, Path(mark))
    ended = Ended(run_id=asked.run_id, status="failed", message=fault) if fault else run_job(asked)
    return ended.model_dump_json()


def find_fault(job: Job, versions: Mapping[str, str], mark: Path) -> str | None:
    """Return why this worker must not run the job; ``None``: it may.

    Its packages have other ``versions`` than the driver's, or its results folder lacks the driver's ``mark``.
    """
    here, host = installed_versions(), socket.gethostname()
    other = [
        f"{name} {here.get(name, 'none')} in place of {version}"
        for name, version in versions.items()
        if here.get(name) != version
    ]
    if other:
        return f"the worker on {host} has other versions than the sweep's own process: {', '.join(other)}"
    if not mark.exists():
        return f"the results folder {job.request.results} is not shared with {host}: it is another one there"
    return None


def _connect(address: str | None) -> bool:
    """Connect to Ray, and return whether it is this executor's to leave."""
    if ray.is_initialized():
        return False
    if address is not None and address != "auto":
        _ask(address)
    try:
        ray.init(
            address="local" if address is None else address,
            num_cpus=usable_cores() if address is None else None,
            include_dashboard=False if address is None else None,
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=False,
        )
    except (ConnectionError, RuntimeError, ValueError, TimeoutError, OSError) as error:
        raise RequestError(
            f"Ray cannot be used: {printable(str(error).splitlines()[0])}",
            where=f"address {address}" if address is not None else "executor 'ray'",
            remedy=_REMEDY,
        ) from error
    return True


def _ask(address: str) -> None:
    """Check that an address answers; Ray itself would wait for a minute."""
    try:
        parts = urlsplit(address if "://" in address else f"ray://{address}")
        socket.create_connection((parts.hostname or "", parts.port or 0), timeout=_ANSWER).close()
    except (OSError, ValueError) as error:
        what = f"nobody answers at {address}: {error}; it is written as HOST:PORT or ray://HOST:PORT"
        raise RequestError(what, where=f"address {address}", remedy=_REMEDY) from error


def _room(cpus: float, gpus: float) -> int:
    """Return how many jobs fit at once, machine by machine."""
    wanted = {kind: number for kind, number in (("CPU", cpus), ("GPU", gpus)) if number > 0}
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    fitting = sum(int(min(has.get(kind, 0.0) / number for kind, number in wanted.items())) for has in machines)
    if not fitting:
        raise RequestError(
            f"no machine of this Ray has room for a job of {cpus:g} cores and {gpus:g} GPUs",
            where="executor 'ray'",
            remedy="ask for less with -o executor.cpus=N and -o executor.gpus=N, or add machines",
        )
    return fitting


def _not_started(job: Job) -> Ended:
    return Ended(run_id=job.run_id, status="interrupted", message="not started")


def _last_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {printable(lines[-1])[:500]}" if lines else type(error).__name__
