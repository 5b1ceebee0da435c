"""Run one job of a sweep in this process and report its progress as events."""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Final

from seu_bench.engine.forecast import Forecast
from seu_bench.engine.stopping import StopRequest
from seu_bench.errors import RunLockedError, SeuBenchError
from seu_bench.hookspecs import hookimpl
from seu_bench.plugin.executors import Ended, Event, Job, Noticed, Progressed

if TYPE_CHECKING:
    from seu_bench.results.record import Record
    from seu_bench.training.interfaces import Cost
    from seu_bench.training.stage import StageProgress

#: Seconds between two reports of a stage, at least.
_INTERVAL: Final = 0.2


def run_job(job: Job, notify: Callable[[Event], None], stop: StopRequest | None = None) -> Ended:
    """Make a run, or resume it, in this process.

    Args:
        job: what the driver gave to the executor.
        notify: is called in this thread with the job's :class:`Progressed` and :class:`Noticed` events.
        stop: whether and when to stop; ``None``: at the end.

    Returns:
        How the job ended. It is not passed to ``notify``, and nothing is raised.

    Example:
        ``events.append(run_job(job, events.append))``
    """
    from seu_bench.engine.launcher import launch

    try:
        launch(job.request, watcher=lambda _: Reporter(job.run_id, notify), stop=stop, run_id=job.run_id)
    except KeyboardInterrupt as stopped:
        return Ended(run_id=job.run_id, status="interrupted", message=str(stopped) or "interrupted")
    except RunLockedError as error:
        return Ended(run_id=job.run_id, status="held", message=str(error))
    except SeuBenchError as error:
        return Ended(run_id=job.run_id, status="failed", message=str(error))
    except Exception as error:
        # A defect: its traceback is needed whole.
        traceback.print_exc()
        return Ended(run_id=job.run_id, status="failed", message=f"{type(error).__name__}: {error}")
    return Ended(run_id=job.run_id, status="finished")


class Reporter:
    """Plugin that watches a run and reports it in events, with times of ``clock`` in seconds."""

    def __init__(
        self, run_id: str, notify: Callable[[Event], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._run_id = run_id
        self._notify = notify
        self._clock = clock
        self._forecast = Forecast(0, clock)
        self._tasks = 0
        self._stage: tuple[int, str] | None = None  # the one reported last, and when
        self._reported = 0.0

    @hookimpl
    def run_started(self, record: Record, cost: Cost) -> None:
        """Report the progress of an earlier attempt."""
        before = sum(stage.image_passes for stage in record.stages)
        self._forecast = Forecast(cost.all_passes, self._clock, before)
        self._tasks = len(record.task_names)
        self._progressed(min(len(record.params_total), self._tasks - 1), "", 0, 0)

    @hookimpl
    def stage_progress(self, progress: StageProgress) -> None:
        """Report the stage's progress, not too often."""
        self._forecast.see(progress)
        now, stage = self._clock(), (progress.task, progress.stage)
        if progress.done or stage != self._stage or now - self._reported >= _INTERVAL:
            self._stage, self._reported = stage, now
            self._progressed(*stage, progress.epoch, progress.epochs)

    @hookimpl
    def run_notice(self, message: str) -> None:
        """Pass it on."""
        self._notify(Noticed(run_id=self._run_id, message=message))

    def _progressed(self, task: int, stage: str, epoch: int, epochs: int) -> None:
        where = {"task": task, "tasks": self._tasks, "stage": stage, "epoch": epoch, "epochs": epochs}
        passes = {"passed": self._forecast.passed, "planned": self._forecast.planned}
        self._notify(Progressed(run_id=self._run_id, remaining=self._forecast.left, **where, **passes))


def run_in_child(connection: Connection, output: str, environment: Mapping[str, str]) -> None:
    """Run the job that comes through a connection: target of the processes of the executor ``local``.

    Each further message asks the run to stop, the second one at once, and so does the end of the connection, when the
    driver is gone. Events go the other way, :class:`Ended` last. ``output`` is the file for standard output and error,
    ``environment`` has all variables.
    """
    from seu_bench.engine.environment import REVISION

    if sys.platform != "win32":
        os.setsid()  # Ctrl-C in the terminal reaches the driver alone, which asks each job once
    with Path(output).open("wb", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    revision = os.environ.get(REVISION)  # of the code that the fork server has imported
    os.environ.clear()
    os.environ |= {**environment, **({REVISION: revision} if revision else {})}
    job: Job = connection.recv()

    def notify(event: Event) -> None:
        with contextlib.suppress(OSError):  # without a driver nobody listens; the end of the connection stops the run
            connection.send(event)

    stop = StopRequest()
    with stop.on_signals():
        threading.Thread(target=_listen, args=(connection,), daemon=True).start()
        ended = run_job(job, notify, stop)
        stop.settle()
        notify(ended)


def _listen(connection: Connection) -> None:
    """Stop the run on each message, and when the driver is gone."""
    is_open = True
    while is_open:
        try:
            connection.recv()
        except (EOFError, OSError):
            is_open = False
        _thread.interrupt_main(signal.SIGTERM)
