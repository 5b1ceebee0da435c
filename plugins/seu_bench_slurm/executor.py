"""The executor: jobs as elements of job arrays of Slurm, submitted and answered by way of submitit."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import stat
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

import submitit
from submitit.core.utils import FailedJobError, FailedSubmissionError

from seu_bench.engine.stopping import StopRequest
from seu_bench.errors import ExitStatus, Interruption, RequestError, ResultsError
from seu_bench.plugin.executors import Ended, Event, Job, Noticed, Started
from seu_bench.sweeps import run_job
from seu_bench.utils.files import cannot_write, make_folder, write_atomic
from seu_bench.utils.text import printable
from seu_bench_slurm.options import SlurmOptions

#: Seconds between two looks for results, and between two questions to Slurm's queue, which many may ask.
_LOOK: Final = 0.5
_ASK: Final = 5.0
#: Seconds that a shared file system may keep the result of a job that is gone to itself.
_LATE: Final = 15.0
#: Seconds that a command of Slurm's may take; a busy controller answers late.
_ANSWER: Final = 60.0
#: Elements of an array at most; clusters allow a thousand by default.
_ARRAY: Final = 1000
#: Of all of our jobs.
_NAME: Final = "seu-bench"
#: What submitit has Slurm send before a job's time is over.
WARNING: Final = signal.SIGUSR2


@dataclass(frozen=True)
class JobTask:
    """The function that submitit calls: one job, queued again when its time is over before it is finished."""

    job: str  #: as JSON
    seconds: float  #: until the run must have stopped

    def __call__(self) -> str:
        """Run the job; returns how it ended, as JSON."""
        stop = StopRequest(self.seconds)

        def stop_in_time(_number: int, _frame: FrameType | None) -> None:
            stop.ask(Interruption("the time of its job is nearly over", ExitStatus.OUT_OF_TIME))

        # In place of submitit's own, which would give up the job at once, wherever it is.
        signal.signal(WARNING, stop_in_time)
        with stop.on_signals():  # Slurm ends jobs by SIGTERM, and kills them a little later
            ended = run_job(Job.model_validate_json(self.job), stop)
        due = stop.due()
        if ended.status == "interrupted" and due is not None and due.exit_code == ExitStatus.OUT_OF_TIME:
            subprocess.run(["scontrol", "requeue", os.environ["SLURM_JOB_ID"]], check=True, timeout=_ANSWER)
            time.sleep(300)  # Slurm ends this process; returning would report an end that is none
        return ended.model_dump_json()


@dataclass
class _Submitted:
    """A job's Slurm job: ``12_3`` for an element of an array; submissions, and since when Slurm does not know it."""

    job: Job
    slurm_job: str
    attempts: int = 1
    has_begun: bool = False
    missed: float | None = None


class SlurmExecutor:
    """Jobs of a sweep as jobs of Slurm, with these options, ``--device`` and ``--threads``.

    Raises:
        RequestError: Slurm is not here, or does not answer.
    """

    slots: int | None = None  # nobody knows how many Slurm lets run

    def __init__(self, options: SlurmOptions, device: str, threads: int) -> None:
        _ask_slurm("sinfo", "--noheader")
        self._options = options
        self._cpus = threads if options.cpus is None else options.cpus
        self._gpus = (1 if device.startswith("cuda") else 0) if options.gpus is None else options.gpus
        self._sent: dict[str, _Submitted] = {}
        self._asked = float("-inf")

    def submit(self, jobs: Sequence[Job]) -> None:
        """Submit those that have no job; take up those that have."""
        living = _living_jobs()
        new = []
        for job in jobs:
            slurm_job = _read_note(job)
            if slurm_job in living:
                self._sent[job.run_id] = _Submitted(job, slurm_job)
            else:
                new.append(_Submitted(job, ""))
        self._submit(new)

    def wait(self, seconds: float) -> Sequence[Event]:
        """Return events; jobs that were lost are submitted again."""
        until = time.monotonic() + seconds
        while True:
            events = [event for sent in list(self._sent.values()) if sent.has_begun for event in self._poll_end(sent)]
            if time.monotonic() - self._asked >= _ASK and self._sent:
                self._asked = time.monotonic()
                events += self._look(_living_jobs())
            remaining = until - time.monotonic()
            if events or remaining <= 0:
                return events
            time.sleep(min(_LOOK, remaining))

    def cancel(self) -> None:
        """End all jobs; those that run write checkpoints first."""
        jobs = [sent.slurm_job for sent in self._sent.values()]
        for first in range(0, len(jobs), 500):
            _ask_slurm("scancel", "--quiet", *jobs[first : first + 500])

    def close(self) -> None:
        """Detach from the jobs, which continue; the next driver takes them up."""
        self._sent.clear()

    def _poll_end(self, sent: _Submitted) -> list[Event]:
        """Return how a job ended, if it did; one that Slurm interrupts is queued again, or missed later."""
        ended = _result(sent)
        if ended is None or ended.status == "interrupted":
            return []
        del self._sent[sent.job.run_id]
        return [ended] if sent.has_begun else [Started(run_id=sent.job.run_id), ended]

    def _look(self, living: Mapping[str, str]) -> list[Event]:
        """Return what Slurm's queue says: jobs that have begun, and jobs that were lost, which are submitted again."""
        events: list[Event] = []
        again: list[_Submitted] = []
        for sent in list(self._sent.values()):
            run_id, now = sent.job.run_id, time.monotonic()
            if sent.slurm_job in living:
                sent.missed = None
                if living[sent.slurm_job] and not sent.has_begun:
                    sent.has_begun = True
                    events.append(Started(run_id=run_id, where=living[sent.slurm_job]))
            elif ended := self._poll_end(sent):
                events += ended
            elif sent.missed is None:
                sent.missed = now
            elif now - sent.missed > _LATE and sent.attempts <= self._options.retries:
                message = f"its Slurm job {sent.slurm_job} is gone; the job is submitted again"
                events.append(Noticed(run_id=run_id, message=message))
                again.append(sent)
            elif now - sent.missed > _LATE:
                del self._sent[run_id]
                message = f"its jobs were lost {sent.attempts} times (see {sent.job.request.results}/slurm/jobs)"
                events.append(Ended(run_id=run_id, status="lost", message=message))
        self._submit(again)
        return events

    def _submit(self, jobs: Sequence[_Submitted]) -> None:
        for first in range(0, len(jobs), _ARRAY):
            part = jobs[first : first + _ARRAY]
            for sent, slurm_job in zip(part, self._submit_array([each.job for each in part]), strict=True):
                self._sent[sent.job.run_id] = _Submitted(
                    sent.job, slurm_job, sent.attempts + bool(sent.slurm_job), sent.has_begun
                )
                write_atomic(_note(sent.job), slurm_job + "\n")

    def _submit_array(self, jobs: Sequence[Job]) -> list[str]:
        seconds = max(1.0, 60.0 * self._options.time - self._options.spare)
        submitter: Any = submitit.SlurmExecutor(folder=_own_folder(jobs[0].request.results))
        try:
            submitter.update_parameters(**self._parameters())
            with submitter.batch():
                submitted = [submitter.submit(JobTask(job.model_dump_json(), seconds)) for job in jobs]
        except (FailedJobError, FailedSubmissionError, RuntimeError, OSError) as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            raise RequestError(
                f"Slurm refuses the jobs: {printable(lines[-1]) if lines else type(error).__name__}",
                where="executor 'slurm'",
                remedy="correct what it names with -o executor.KEY=VALUE (seu-bench list executors shows the keys)",
            ) from error
        return [made.job_id for made in submitted]

    def _parameters(self) -> dict[str, Any]:
        options = self._options
        given: dict[str, Any] = {
            "job_name": _NAME,
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


def _living_jobs() -> dict[str, str]:
    """Return the node of each of our jobs that wait or run, by id; of one that waits it is empty."""
    asked = ("--noheader", "--array", "--me", f"--name={_NAME}", "--format=%i|%t|%N")
    rows = [line.split("|") for line in _ask_slurm("squeue", *asked).splitlines()]
    return {job: node if state == "R" else "" for job, state, node in rows}


def _ask_slurm(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER, check=True).stdout
    except FileNotFoundError:
        problem = f"there is no command {command[0]}"
    except subprocess.TimeoutExpired:
        problem = f"{command[0]} did not answer within {_ANSWER:g} seconds"
    except subprocess.CalledProcessError as error:
        lines = [line for line in error.stderr.splitlines() if line.strip()]
        problem = f"{command[0]} says: {printable(lines[-1]) if lines else f'exit status {error.returncode}'}"
    raise RequestError(
        f"Slurm cannot be used: {problem}",
        where="executor 'slurm'",
        remedy="run this where jobs can be submitted from (sinfo must work there), or use another executor",
    )


def _own_folder(results: Path) -> Path:
    """Make the folder of submitit's files, or check it: what lies there is unpickled, and may run anything."""
    folder = results / "slurm" / "jobs"
    try:
        make_folder(folder, 0o700)
        state = folder.lstat()
    except OSError as error:
        raise cannot_write(folder, error) from error
    is_mine = state.st_uid == os.geteuid() and stat.S_ISDIR(state.st_mode)
    if not is_mine or state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ResultsError(
            "others may write here, and Slurm's jobs run what lies here",
            where=str(folder),
            remedy=f"make it yours alone (chmod 700 {shlex.quote(str(folder))}), or give another folder with --results",
        )
    return folder


def _result(sent: _Submitted) -> Ended | None:
    """Return how a job ended, once its Slurm job is gone; ``None``: it did not say so."""
    made: Any = submitit.SlurmJob(folder=_own_folder(sent.job.request.results), job_id=sent.slurm_job, tasks=[0])
    if not made.paths.result_pickle.exists():
        return None
    try:
        return Ended.model_validate_json(made.result())
    except FailedJobError as error:  # it has not even the modules
        message = printable(str(error).strip().splitlines()[-1])
        return Ended(run_id=sent.job.run_id, status="failed", message=message)


def _note(job: Job) -> Path:
    return job.request.results / "slurm" / "notes" / job.run_id


def _read_note(job: Job) -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return _note(job).read_text(encoding="utf-8").strip()[:40]
    return ""
