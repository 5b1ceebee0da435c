"""Makes one job of a sweep and tells of it. Also a program, which the executor ``local`` starts for each job:

a line of JSON, the job, comes by standard input, and events go by standard output, a line of JSON each. A further byte
on standard input asks the run to stop, a second one stops it at once; so does its end, when the driver is gone.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from seu_bench.engine.stopping import StopRequest
from seu_bench.errors import RunHeldError, SeuBenchError
from seu_bench.hookspecs import hookimpl
from seu_bench.plugin.executors import Ended, Event, Job, Noticed, Progressed

if TYPE_CHECKING:
    from seu_bench.results.record import Record
    from seu_bench.training.interfaces import Cost
    from seu_bench.training.stage import StageProgress

#: Seconds between two reports of a stage that goes on, at least.
_BETWEEN: Final = 0.2


def run_job(job: Job, tell: Callable[[Event], None], stop: StopRequest | None = None) -> Ended:
    """Make a run, or go on with it, and tell of its progress; how it ended is returned and not told.

    Args:
        tell: is called in this thread, with events of this job.
        stop: whether and when to stop; ``None``: at the end.
    """
    try:
        message = _make(job, tell, stop)
    except KeyboardInterrupt as stopped:
        return Ended(run_id=job.run_id, status="interrupted", message=str(stopped) or "interrupted")
    except RunHeldError as error:
        return Ended(run_id=job.run_id, status="held", message=str(error))
    except SeuBenchError as error:
        return Ended(run_id=job.run_id, status="failed", message=str(error))
    except Exception as error:
        # A defect: whoever looks for it needs all of it.
        traceback.print_exc()
        return Ended(run_id=job.run_id, status="failed", message=f"{type(error).__name__}: {error}")
    return Ended(run_id=job.run_id, status="failed" if message else "finished", message=message)


def _make(job: Job, tell: Callable[[Event], None], stop: StopRequest | None) -> str:
    """Why the run was not made; empty where it was."""
    from seu_bench.engine.loggers import add_loggers
    from seu_bench.engine.resolve import resolve
    from seu_bench.engine.runner import execute
    from seu_bench.plugin.registry import Registry

    registry = Registry()
    resolved = resolve(registry, job.request)
    if resolved.spec.run_id != job.run_id:
        return (
            f"here this job is another run, {resolved.spec.run_id}: data or versions are not those that the sweep was "
            "planned with; plan it again"
        )
    add_loggers(registry, job.log, job.log_options, job.execution.results)
    registry.manager.register(Reporter(job.run_id, tell), name="seu_bench.sweeps.worker")
    execute(registry, resolved, job.execution, stop=stop)
    return ""


class Reporter:
    """A plugin that watches a run and tells of it in events.

    Args:
        clock: seconds from any start.
    """

    def __init__(self, run_id: str, tell: Callable[[Event], None], clock: Callable[[], float] = time.monotonic) -> None:
        from seu_bench.engine.forecast import Forecast

        self._run_id = run_id
        self._tell = tell
        self._clock = clock
        self._forecast = Forecast(0, clock)
        self._tasks = 0
        self._told: tuple[tuple[int, str], float] | None = None

    @hookimpl
    def run_started(self, record: Record, cost: Cost) -> None:
        """Tell what was done by an earlier attempt."""
        from seu_bench.engine.forecast import Forecast

        before = sum(stage.image_passes for stage in record.stages)
        self._forecast = Forecast(cost.all_passes, self._clock, before)
        self._tasks = len(record.task_names)
        self._progressed(min(len(record.params_total), self._tasks - 1), "", 0, 0)

    @hookimpl
    def stage_progress(self, progress: StageProgress) -> None:
        """Tell where the stage stands, not too often."""
        self._forecast.see(progress)
        now, stage = self._clock(), (progress.task, progress.stage)
        within = self._told is not None and self._told[0] == stage and now - self._told[1] < _BETWEEN
        if within and not progress.done:
            return
        self._told = (stage, now)
        self._progressed(progress.task, progress.stage, progress.epoch, progress.epochs)

    @hookimpl
    def run_notice(self, message: str) -> None:
        """Pass it on."""
        self._tell(Noticed(run_id=self._run_id, message=message))

    def _progressed(self, task: int, stage: str, epoch: int, epochs: int) -> None:
        forecast = self._forecast
        self._tell(
            Progressed(
                run_id=self._run_id,
                task=task,
                tasks=self._tasks,
                stage=stage,
                epoch=epoch,
                epochs=epochs,
                passed=forecast.passed,
                planned=forecast.planned,
                remaining=forecast.left,
            )
        )


def main() -> None:
    """Make the job that comes by standard input."""
    channel = os.dup(1)
    os.dup2(2, 1)  # what plugins print is no event

    def tell(event: Event) -> None:
        # Without a driver there is nobody to tell; the run is stopped by the end of standard input.
        with contextlib.suppress(OSError):
            os.write(channel, event.model_dump_json().encode() + b"\n")

    # Unbuffered: the next bytes are the other thread's, which must hold no lock when this process ends.
    with open(0, "rb", buffering=0, closefd=False) as line:
        job = Job.from_json(line.readline())
    stop = StopRequest()
    with stop.on_signals():
        threading.Thread(target=_listen, daemon=True).start()
        ended = run_job(job, tell, stop)
        stop.settle()
        tell(ended)
    sys.exit(0)


def _listen() -> None:
    """Ask the run to stop for each byte that comes, and when none can come any more."""
    while True:
        try:
            asked = os.read(0, 1)
        except OSError:
            asked = b""
        _thread.interrupt_main(signal.SIGTERM)
        if not asked:
            return


if __name__ == "__main__":
    main()
