"""One job in this process; and the executor ``local``: a process for each job on this machine.

On Linux these processes are forked from a server that has imported torch and Avalanche once for all of them.
"""

from __future__ import annotations

import _thread
import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import connection
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from pydantic import Field

from seu_bench.config.options import Options
from seu_bench.engine.stopping import StopRequest
from seu_bench.errors import RunLockedError, SeuBenchError
from seu_bench.hookspecs import hookimpl
from seu_bench.plugin.executors import Ended, Event, Executor, ExecutorFactory, Job, Started
from seu_bench.plugin.registration import Register
from seu_bench.plugin.registry import installed_points
from seu_bench.utils.hardware import usable_cores
from seu_bench.utils.text import printable

#: How processes begin. macOS can fork as well, but its libraries do not bear it.
METHOD: Final = "forkserver" if sys.platform == "linux" else "spawn"
#: Modules that every job imports sooner or later; the last one for scikit-learn's digits.
_PRELOADED: Final = (
    "seu_bench.engine.checkpoint",
    "seu_bench.engine.recorder",
    "seu_bench.engine.saved_model",
    "seu_bench.engine.runner",
    "seu_bench.training.strategy",
    "seu_bench.data.streams",
    "seu_bench.sweeps.local",
    "sklearn.datasets",
)
#: Seconds that jobs have to stop when the driver leaves.
_PATIENCE: Final = 10.0
#: Read when they are imported by libraries beside torch, such as NumPy's; torch is told by the run itself.
_THREADS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_GPUS: Final = "CUDA_VISIBLE_DEVICES"


class LocalOptions(Options):
    """Jobs at once."""

    jobs: int | None = Field(None, ge=1, description="jobs at once; else cores over threads, or one for each GPU")


class LocalFactory:
    """Processes of this machine."""

    summary = "a process for each job on this machine, as many at once as there are cores, or GPUs"
    options: type[Options] = LocalOptions
    detaches = False

    def build(self, options: LocalOptions, device: str, threads: int) -> Executor:
        """Count cores and GPUs."""
        import torch

        from seu_bench.engine.environment import choose_device

        chosen = choose_device(device)
        gpus = visible_gpus(os.environ, torch.cuda.device_count()) if chosen == "cuda" else []
        by_default = usable_cores() // threads if chosen == "cpu" else len(gpus)
        return LocalExecutor(options.jobs or max(1, by_default), gpus)


@hookimpl
def register_executors(register: Register[ExecutorFactory]) -> None:
    """Offer ``local``."""
    register("local", LocalFactory())


def visible_gpus(environment: Mapping[str, str], count: int) -> list[str]:
    """Return the ``count`` CUDA devices of this process, each as ``CUDA_VISIBLE_DEVICES`` names it."""
    named = [name.strip() for name in environment.get(_GPUS, "").split(",") if name.strip()]
    return named[:count] or [str(gpu) for gpu in range(count)]


def with_share(job: Job, slots: int) -> Job:
    """Return a job that takes its share of the memory for features of frozen layers, beside ``slots`` - 1 others.

    Each run by itself would take half of what is free; together they do.
    """
    if slots == 1 or job.request.feature_cache is not None:
        return job
    from seu_bench.models.feature_cache import SHARE
    from seu_bench.utils.hardware import free_host_memory

    share = int(SHARE * free_host_memory() / slots)
    return job.model_copy(update={"request": job.request.model_copy(update={"feature_cache": share})})


class LocalExecutor:
    """So many jobs at once, each in a process; CUDA devices, if any, are given to the slots in turn."""

    def __init__(self, jobs: int, gpus: Sequence[str] = (), method: str = METHOD) -> None:
        self.slots = jobs
        self._gpus = tuple(gpus)
        self._context: Any = multiprocessing.get_context(method)
        self._inherited: dict[str, str] = {}
        self._free = list(range(jobs))
        self._waiting: deque[Job] = deque()
        self._running: dict[str, _Worker] = {}
        self._events: list[Event] = []

    def submit(self, jobs: Sequence[Job]) -> None:
        """Begin as many as there are slots."""
        from seu_bench.engine.environment import REVISION, code_revision

        if self._context.get_start_method() == "forkserver":
            # No effect on a server that runs already: there is one for all sweeps of this process. Records name the
            # code that it has imported, even if the checkout is changed while jobs run.
            # Of plugins only what could be imported here: another one would end the server.
            plugins = [point.module for point, _ in installed_points() if point.module in sys.modules]
            self._context.set_forkserver_preload([*_PRELOADED, *plugins])
            self._inherited = {REVISION: revision} if (revision := code_revision()) else {}
        self._waiting.extend(jobs)
        self._fill()

    def wait(self, seconds: float) -> Sequence[Event]:
        """Return the events of the processes; slots that have become free are filled."""
        self._receive(0 if self._events else seconds)
        self._fill()
        events, self._events = self._events, []
        return events

    def cancel(self) -> None:
        """Ask all jobs to stop."""
        while self._waiting:
            run_id = self._waiting.popleft().run_id
            self._events.append(Ended(run_id=run_id, status="interrupted", message="not started"))
        for worker in self._running.values():
            worker.send(None)

    def close(self) -> None:
        """Ask running jobs to stop, a second time if they were asked before, and kill those that do not."""
        self._waiting.clear()
        deadline = time.monotonic() + _PATIENCE
        try:
            for worker in self._running.values():
                worker.send(None)
            while self._running and (remaining := deadline - time.monotonic()) > 0:
                self._receive(remaining)
        finally:
            for worker in self._running.values():
                worker.kill()
            self._running.clear()

    def _receive(self, seconds: float) -> None:
        by_connection = {worker.connection: worker for worker in self._running.values()}
        for ready in connection.wait(list(by_connection), seconds):
            worker = by_connection[ready]
            self._events += worker.receive()
            if worker.is_gone:
                self._free.append(worker.slot)
                del self._running[worker.run_id]

    def _fill(self) -> None:
        while self._free and self._waiting:
            job, slot = self._waiting.popleft(), min(self._free)
            gpu = self._gpus[slot % len(self._gpus)] if self._gpus else ""
            threads = dict.fromkeys(_THREADS, str(job.request.threads))
            environment = {**os.environ, **threads, **({_GPUS: gpu} if gpu else {})}
            try:
                with _seen_by_children(environment | self._inherited):
                    worker = _Worker(job.run_id, slot, self._context, environment)
            except (OSError, EOFError) as error:
                message = f"no process could be started: {error}"
                self._events.append(Ended(run_id=job.run_id, status="failed", message=message))
                continue
            worker.send(with_share(job, self.slots))
            self._free.remove(slot)
            self._running[job.run_id] = worker
            self._events.append(Started(run_id=job.run_id, where=f"cuda {gpu}" if gpu else ""))


class _Worker:
    """Process of a job; ``is_gone``: ended and its events received. OSError or EOFError if it cannot start."""

    def __init__(self, run_id: str, slot: int, context: Any, environment: Mapping[str, str]) -> None:
        self.run_id = run_id
        self.slot = slot
        self.is_gone = False
        self._ended: Ended | None = None
        with contextlib.ExitStack() as undo:
            self._output = undo.enter_context(tempfile.NamedTemporaryFile(prefix="seu-bench-"))
            self.connection, theirs = context.Pipe()
            undo.callback(self.connection.close)
            with theirs:
                self._process = context.Process(target=run_in_child, args=(theirs, self._output.name, environment))
                self._process.start()
            self._resources = undo.pop_all()

    def send(self, message: Job | None) -> None:
        """Send the job, or ask it to stop: the first time at its next checkpoint, the second time at once."""
        with contextlib.suppress(OSError):  # it has ended, which its connection says
            self.connection.send(message)

    def receive(self) -> list[Event]:
        """Return how the job ended, once its process is gone."""
        try:
            while self.connection.poll():
                self._ended = self.connection.recv()
        except (EOFError, OSError):
            self._process.join()
            ended = self._ended or self._lost(self._process.exitcode)
            self._close()
            return [ended]
        return []

    def kill(self) -> None:
        """Kill the process and join it."""
        self._process.kill()
        self._process.join()
        self._close()

    def _close(self) -> None:
        self.is_gone = True
        self._resources.close()

    def _lost(self, status: int) -> Ended:
        if status < 0:
            name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
            message = f"its process was killed by {name}"
            message += "; perhaps memory was short" if name == "SIGKILL" else ""
        elif status == 255:  # of multiprocessing, where the fork server, which knew it, is gone
            message = "worker exited with unknown status"
        else:
            message = f"its process ended with status {status} without a word"
        lines = Path(self._output.name).read_text(encoding="utf-8", errors="replace")[-4000:].splitlines()
        last = next((f": {printable(line)[:500]}" for line in reversed(lines) if line.strip()), "")
        return Ended(run_id=self.run_id, status="lost", message=message + last)


def run_job(job: Job, stop: StopRequest | None = None) -> Ended:
    """Make a run, or resume it, in this process; nothing is raised.

    Args:
        job: what the driver gave to the executor.
        stop: whether and when to stop; ``None``: at the end.
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
        traceback.print_exc()  # a defect
        return Ended(run_id=job.run_id, status="failed", message=f"{type(error).__name__}: {error}")
    return Ended(run_id=job.run_id, status="finished")


def run_in_child(channel: connection.Connection, output: str, environment: Mapping[str, str]) -> None:
    """Run the job that comes through a connection: target of the processes of the executor ``local``.

    Each further message asks the run to stop, the second one at once, and so does the end of the connection, when the
    driver is gone. :class:`Ended` goes the other way. ``output`` is the file for standard output and error.
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
    job: Job = channel.recv()
    stop = StopRequest()
    with stop.on_signals():
        threading.Thread(target=_listen, args=(channel,), daemon=True).start()
        ended = run_job(job, stop)
        stop.settle()
        with contextlib.suppress(OSError):  # nobody listens where the driver is gone
            channel.send(ended)


def _listen(channel: connection.Connection) -> None:
    """Stop the run on each message, and when the driver is gone."""
    is_open = True
    while is_open:
        try:
            channel.recv()
        except (EOFError, OSError):
            is_open = False
        _thread.interrupt_main(signal.SIGTERM)


@contextlib.contextmanager
def _seen_by_children(environment: Mapping[str, str]) -> Iterator[None]:
    """Hide ``__main__`` from child processes: multiprocessing would import the caller's script, and sweep again."""
    main, before = sys.modules["__main__"], dict(os.environ)
    sys.modules["__main__"] = ModuleType("__main__")
    os.environ |= {**environment, "PYTHONSAFEPATH": "1"}  # a file in the working folder is no module of ours
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ |= before
