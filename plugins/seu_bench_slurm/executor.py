"""The executor: jobs as elements of job arrays of Slurm, which report their progress in files."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import submitit
from submitit.core.utils import FailedJobError, FailedSubmissionError

from seu_bench.errors import RequestError
from seu_bench.plugin.executors import Ended, Event, Job, Noticed, Started
from seu_bench.utils.text import printable
from seu_bench_slurm.notes import Note, last_words, new_events, own_jobs_folder, read_events, read_note, write_note
from seu_bench_slurm.options import SlurmOptions
from seu_bench_slurm.queue import JOB_NAME, cancel, living_jobs
from seu_bench_slurm.work import JobTask

#: Seconds between two looks at the files of jobs, and at Slurm's queue, which many may ask.
_LOOK: Final = 0.5
_ASK: Final = 5.0
#: Seconds that a shared file system may keep the last lines of a job that is gone to itself.
_LATE: Final = 15.0
#: Elements of an array at most; clusters allow a thousand by default.
_ARRAY: Final = 1000


@dataclass
class _Submitted:
    """A job's Slurm job: submissions by this driver, bytes of events read, and when Slurm first did not know it."""

    job: Job
    note: Note
    attempts: int
    read: int = 0
    missed: float | None = None
    has_begun: bool = False


class SlurmExecutor:
    """Jobs of a sweep as jobs of Slurm.

    Args:
        options: what each is given.
        device: what ``--device`` says.
        threads: that each computes with.
    """

    slots: int | None = None  # nobody knows how many Slurm lets run

    def __init__(self, options: SlurmOptions, device: str, threads: int) -> None:
        self._options = options
        self._cpus = threads if options.cpus is None else options.cpus
        self._gpus = (1 if device.startswith("cuda") else 0) if options.gpus is None else options.gpus
        self._sent: dict[str, _Submitted] = {}
        self._events: deque[Event] = deque()
        self._asked = float("-inf")

    def submit(self, jobs: Sequence[Job]) -> None:
        """Submit those that have no job; take up those that have.

        Raises:
            RequestError: Slurm refuses.
        """
        living = living_jobs()
        new: list[Job] = []
        for job in jobs:
            known = read_note(job)
            if known is not None and known.slurm_job in living:
                self._sent[job.run_id] = _Submitted(job, known, 1)
            else:
                new.append(job)
        self._submit([(job, 1) for job in new])

    def wait(self, seconds: float) -> Sequence[Event]:
        """Return events; jobs that were lost are submitted again."""
        until = time.monotonic() + seconds
        while True:
            for sent in list(self._sent.values()):
                self._read(sent)
            if time.monotonic() - self._asked >= _ASK and self._sent:
                self._asked = time.monotonic()
                self._look_for_lost(living_jobs())
            remaining = until - time.monotonic()
            if self._events or remaining <= 0:
                events = tuple(self._events)
                self._events.clear()
                return events
            time.sleep(min(_LOOK, remaining))

    def cancel(self) -> None:
        """End all jobs; those that run write checkpoints first."""
        cancel([sent.note.slurm_job for sent in self._sent.values()])

    def close(self) -> None:
        """Detach from the jobs, which continue; the next driver takes them up."""
        self._sent.clear()

    # ------------------------------------------------------------------ to Slurm

    def _submit(self, asked: Sequence[tuple[Job, int]]) -> None:
        by_results: dict[Path, list[tuple[Job, int]]] = {}
        for job, attempt in asked:
            by_results.setdefault(job.request.results, []).append((job, attempt))
        for results, there in by_results.items():
            for first in range(0, len(there), _ARRAY):
                part = there[first : first + _ARRAY]
                notes = self._submit_array(results, [job for job, _ in part])
                for (job, attempt), note in zip(part, notes, strict=True):
                    self._sent[job.run_id] = _Submitted(job, note, attempt)
                    write_note(job, note)

    def _submit_array(self, results: Path, jobs: Sequence[Job]) -> list[Note]:
        seconds = max(1.0, 60.0 * self._options.time - self._options.spare)
        tasks = [JobTask(job.model_dump_json(), str(new_events(job)), seconds) for job in jobs]
        submitter: Any = submitit.SlurmExecutor(folder=own_jobs_folder(results))
        try:
            submitter.update_parameters(**self._parameters())
            with submitter.batch():
                submitted = [submitter.submit(task) for task in tasks]
        except (FailedJobError, FailedSubmissionError, RuntimeError, OSError) as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            raise RequestError(
                f"Slurm refuses the jobs: {printable(lines[-1]) if lines else type(error).__name__}",
                where="executor 'slurm'",
                remedy="correct what it names with -o executor.KEY=VALUE (seu-bench list executors shows the keys)",
            ) from error
        return [Note(made.job_id, Path(task.events)) for made, task in zip(submitted, tasks, strict=True)]

    def _parameters(self) -> dict[str, Any]:
        options = self._options
        given: dict[str, Any] = {
            "job_name": JOB_NAME,
            "partition": options.partition,
            "time": options.time,
            "cpus_per_task": self._cpus,
            "gpus_per_node": self._gpus or None,
            "mem": None if options.memory is None else f"{round(options.memory * 1024)}M",
            "account": options.account,
            "qos": options.qos,
            "constraint": options.constraint,
            "array_parallelism": options.jobs,
            # A job looks at the time itself. This comes where it did not, and up to a minute earlier than is said.
            "signal_delay_s": max(1, round(options.spare / 6)),
            "additional_parameters": {"requeue": True},
        }
        return {key: value for key, value in given.items() if value is not None}

    # ------------------------------------------------------------------ from jobs

    def _read(self, sent: _Submitted) -> None:
        events, sent.read = read_events(sent.note.events, sent.read)
        for event in events:
            if isinstance(event, Started):
                if sent.has_begun:
                    continue  # it was queued again, and is resumed
                sent.has_begun = True
            if isinstance(event, Ended):
                if event.status == "interrupted":
                    continue  # by Slurm: whether the job is queued again is seen in the queue
                del self._sent[sent.job.run_id]
                self._events.append(event)
                return
            self._events.append(event)

    def _look_for_lost(self, living: set[str]) -> None:
        again: list[tuple[Job, int]] = []
        now = time.monotonic()
        for sent in list(self._sent.values()):
            if sent.note.slurm_job in living:
                sent.missed = None
            elif sent.missed is None:
                sent.missed = now
            elif now - sent.missed > _LATE:
                del self._sent[sent.job.run_id]
                if sent.attempts <= self._options.retries:
                    message = f"its Slurm job {sent.note.slurm_job} is gone; the job is submitted again"
                    self._events.append(Noticed(run_id=sent.job.run_id, message=message))
                    again.append((sent.job, sent.attempts + 1))
                else:
                    last = last_words(sent.job.request.results, sent.note.slurm_job)
                    message = f"its jobs were lost {sent.attempts} times, the last one with: {last}"
                    self._events.append(Ended(run_id=sent.job.run_id, status="lost", message=message))
        if again:
            self._submit(again)
