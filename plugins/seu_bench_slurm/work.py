"""Work of a Slurm job: one job of the sweep, queued again when its time is over before it is finished."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from seu_bench.engine.stopping import StopRequest
from seu_bench.errors import ExitStatus, Interruption
from seu_bench.plugin.executors import Event, Job, Noticed, Started

#: What submitit has Slurm send before a job's time is over.
WARNING: Final = signal.SIGUSR2
#: Seconds that Slurm takes to end a job that is to be queued again.
_TO_BE_ENDED: Final = 300.0


@dataclass(frozen=True)
class JobTask:
    """The function that submitit calls.

    Attributes:
        job: as JSON.
        events: where events go, a line of JSON each.
        seconds: until the run must have stopped and the job is queued again.
    """

    job: str
    events: str
    seconds: float

    def __call__(self) -> str:
        """Run the job; returns how it ended."""
        stop = StopRequest(self.seconds)

        def nearly_over(_number: int, _frame: FrameType | None) -> None:
            stop.ask(Interruption("the time of its job is nearly over", ExitStatus.OUT_OF_TIME))

        # In place of submitit's own, which would give up the job at once. Slurm sends it before a job's time is over.
        signal.signal(WARNING, nearly_over)
        from seu_bench.sweeps import run_job

        job = Job.model_validate_json(self.job)
        self.notify(Started(run_id=job.run_id, where=socket.gethostname()))
        with stop.on_signals():  # Slurm ends jobs by SIGTERM, and kills them a little later
            ended = run_job(job, self.notify, stop)
        due = stop.due()
        if ended.status == "interrupted" and due is not None and due.exit_code == ExitStatus.OUT_OF_TIME:
            self._queue_again(job)
        self.notify(ended)
        return ended.status

    def notify(self, event: Event) -> None:
        """Append a line; one write, so that no reader sees a part of it."""
        with Path(self.events).open("ab", buffering=0) as file:
            file.write(event.model_dump_json().encode() + b"\n")

    def _queue_again(self, job: Job) -> None:
        message = "its job's time is over; it is queued again, and resumes from its checkpoint"
        self.notify(Noticed(run_id=job.run_id, message=message))
        subprocess.run(["scontrol", "requeue", os.environ["SLURM_JOB_ID"]], check=True, timeout=60)
        time.sleep(_TO_BE_ENDED)  # Slurm ends this process; returning would report an end that is none
