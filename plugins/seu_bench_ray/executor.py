"""The executor: jobs as tasks of Ray, which report to one actor."""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import ray
from ray.exceptions import RayError, RayTaskError, TaskCancelledError

from seu_bench.engine.environment import installed_versions
from seu_bench.plugin.executors import Ended, Event, Job, Noticed, Started, event_from_json
from seu_bench.sweeps import with_share
from seu_bench.utils.text import printable
from seu_bench_ray.connection import Connection
from seu_bench_ray.marks import Marks
from seu_bench_ray.work import Assignment, Mailbox, run_assigned

#: Seconds between two looks for events.
_LOOK: Final = 0.1
#: Seconds that jobs have to stop when the driver leaves; they need two and the time of writing a checkpoint.
_PATIENCE: Final = 10.0
#: Jobs submitted to Ray beyond those it has room for, so that a cluster that can grow sees what is wanted.
_AHEAD: Final = 16


@dataclass
class _Task:
    """The task of Ray that runs a job.

    Attributes:
        attempts: how often.
        has_begun: whether the present attempt has reported its start.
    """

    job: Job
    attempts: int = 0
    has_begun: bool = False
    reference: Any = None


class RayExecutor:
    """Jobs as tasks.

    Args:
        connection: is closed with the executor.
        cpus, gpus: of each job.
        jobs: jobs at once at most; ``None``: as many as Ray has room for.
        retries: how often a job starts again whose worker was lost.
    """

    def __init__(self, connection: Connection, cpus: float, gpus: float, jobs: int | None, retries: int) -> None:
        self._connection = connection
        self._room = connection.room(cpus, gpus)
        self.slots = self._room if jobs is None else min(jobs, self._room)
        self._most = self._room + _AHEAD if jobs is None else jobs
        self._retries = retries
        mailbox: Any = ray.remote(num_cpus=0, max_restarts=0)(Mailbox)
        self._mailbox: Any = mailbox.remote()
        # Ray would begin a lost task again by itself, without notice.
        self._task: Any = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0)(run_assigned)
        self._versions = installed_versions()
        self._marks = Marks()
        self._waiting: deque[_Task] = deque()
        self._running: dict[str, _Task] = {}
        self._events: deque[Event] = deque()
        self._cancelled = False

    def submit(self, jobs: Sequence[Job]) -> None:
        """Submit as many to Ray as it has room for, and some more."""
        beside = max(1, math.ceil(self.slots / self._connection.machines))
        self._waiting.extend(_Task(with_share(job, beside)) for job in jobs)
        self._fill()

    def wait(self, seconds: float) -> Sequence[Event]:
        """Return events; jobs whose worker was lost start again."""
        until = time.monotonic() + seconds
        while True:
            over = self._over()  # before events are taken: an end comes after all else of its job
            self._take()
            for task in over:
                self._end(task)
            self._fill()
            remaining = until - time.monotonic()
            if self._events or remaining <= 0:
                events = tuple(self._events)
                self._events.clear()
                return events
            time.sleep(min(_LOOK, remaining))

    def cancel(self) -> None:
        """Ask all jobs to stop."""
        self._cancelled = True
        while self._waiting:
            self._events.append(_not_started(self._waiting.popleft().job))
        for task in self._running.values():
            if not task.has_begun:
                ray.cancel(task.reference)
        ray.get(self._mailbox.stop.remote())

    def close(self) -> None:
        """Ask what still runs to stop, and end what does not."""
        try:
            references = [task.reference for task in self._running.values()]
            with contextlib.suppress(RayError):
                if references:
                    ray.get(self._mailbox.stop.remote(), timeout=_PATIENCE)
                    ray.wait(references, num_returns=len(references), timeout=_PATIENCE)
                for reference in references:
                    ray.cancel(reference, force=True)
                ray.kill(self._mailbox)
        finally:
            self._marks.remove()
            self._connection.close()

    def _fill(self) -> None:
        while self._waiting and len(self._running) < self._most and not self._cancelled:
            task = self._waiting.popleft()
            task.attempts += 1
            task.has_begun = False
            mark = self._marks.place_in(task.job.request.results)
            assignment = Assignment(task.job.model_dump_json(), self._versions, mark)
            task.reference = self._task.remote(assignment, self._mailbox)
            self._running[task.job.run_id] = task

    def _over(self) -> list[_Task]:
        by_reference = {task.reference: task for task in self._running.values()}
        if not by_reference:
            return []
        ready, _ = ray.wait(list(by_reference), num_returns=len(by_reference), timeout=0, fetch_local=False)
        return [by_reference[reference] for reference in ready]

    def _take(self) -> None:
        taken: list[str] = ray.get(self._mailbox.take.remote())
        for event in map(event_from_json, taken):
            task = self._running.get(event.run_id)
            if task is None:
                continue  # of an attempt that was lost
            if isinstance(event, Started):
                if task.has_begun:
                    continue
                task.has_begun = True
                if task.attempts > 1:
                    continue  # it has started before, and is resumed
            self._events.append(event)

    def _end(self, task: _Task) -> None:
        job = task.job
        del self._running[job.run_id]
        try:
            ended = Ended.model_validate_json(ray.get(task.reference))
        except TaskCancelledError:
            ended = _not_started(job)
        except RayTaskError as error:  # what the worker raised: it has not even the modules, or a defect
            ended = Ended(run_id=job.run_id, status="failed", message=_last_line(error))
        except RayError as error:
            if self._cancelled:
                ended = Ended(run_id=job.run_id, status="lost", message=f"its worker is gone: {_last_line(error)}")
            elif task.attempts <= self._retries:
                message = f"its worker is gone ({type(error).__name__}); the job starts again"
                self._events.append(Noticed(run_id=job.run_id, message=message))
                self._waiting.appendleft(task)
                return
            else:
                times = f"{task.attempts} time{'s' if task.attempts != 1 else ''}"
                message = f"its worker was lost {times}, the last time by {_last_line(error)}"
                ended = Ended(run_id=job.run_id, status="lost", message=message)
        self._events.append(ended)


def _not_started(job: Job) -> Ended:
    return Ended(run_id=job.run_id, status="interrupted", message="not started")


def _last_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {printable(lines[-1])[:500]}" if lines else type(error).__name__
