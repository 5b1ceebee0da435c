"""Run one job of a sweep in this process."""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path

from seu_bench.engine.stopping import StopRequest
from seu_bench.errors import RunLockedError, SeuBenchError
from seu_bench.plugin.executors import Ended, Job


def run_job(job: Job, stop: StopRequest | None = None) -> Ended:
    """Make a run, or resume it, in this process.

    Args:
        job: what the driver gave to the executor.
        stop: whether and when to stop; ``None``: at the end.

    Returns:
        How the job ended. Nothing is raised.
    """
    from seu_bench.engine.launcher import launch

    try:
        launch(job.request, stop=stop, run_id=job.run_id)
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


def run_in_child(connection: Connection, output: str, environment: Mapping[str, str]) -> None:
    """Run the job that comes through a connection: target of the processes of the executor ``local``.

    Each further message asks the run to stop, the second one at once, and so does the end of the connection, when the
    driver is gone. :class:`Ended` goes the other way. ``output`` is the file for standard output and error,
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
    stop = StopRequest()
    with stop.on_signals():
        threading.Thread(target=_listen, args=(connection,), daemon=True).start()
        ended = run_job(job, stop)
        stop.settle()
        with contextlib.suppress(OSError):  # nobody listens where the driver is gone
            connection.send(ended)


def _listen(connection: Connection) -> None:
    """Stop the run on each message, and when the driver is gone."""
    is_open = True
    while is_open:
        try:
            connection.recv()
        except (EOFError, OSError):
            is_open = False
        _thread.interrupt_main(signal.SIGTERM)
