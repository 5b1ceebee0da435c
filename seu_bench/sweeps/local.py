"""The executor ``local``: a process of its own for each job, as many at once as there are cores, or cards.

Where processes can be copied, a job's process is a copy of one that has imported everything already.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import BinaryIO, Final, Protocol, TypeAlias

from pydantic import Field

from seu_bench.config.options import Options
from seu_bench.hookspecs import hookimpl
from seu_bench.plugin.executors import (
    Ended,
    Ending,
    Event,
    Executor,
    ExecutorFactory,
    Job,
    Started,
    event_from_json,
)
from seu_bench.plugin.registration import Register
from seu_bench.sweeps import fork_server
from seu_bench.utils.hardware import usable_cores
from seu_bench.utils.text import printable

#: Seconds that jobs have to stop when the driver leaves; they need two and the time of writing a checkpoint.
_PATIENCE: Final = 10.0
#: Read by the libraries that compute, when they are imported.
_THREADS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_CARDS: Final = "CUDA_VISIBLE_DEVICES"
#: What a process does that is started for a job; ``-P``: a file in the working folder is no module of ours.
_WORKER: Final = (sys.executable, "-P", "-m", "seu_bench.sweeps.worker")


class _Process(Protocol):
    def wait(self) -> int | None: ...

    def kill(self) -> None: ...


#: Starts a process with these variables of the environment besides, and standard input, output and error.
_Start: TypeAlias = Callable[[Mapping[str, str], int, int, int], _Process]


class LocalOptions(Options):
    """How many jobs at once, and what each is given."""

    jobs: int | None = Field(None, ge=1, description="jobs at once; else cores over threads, or one for each card")
    threads: int | None = Field(None, ge=1, description="of each job; else 1, or with cards the cores shared out")


class LocalFactory:
    """Processes of this machine."""

    summary = "a process for each job on this machine, as many at once as there are cores, or cards"
    options: type[Options] = LocalOptions
    detaches = False

    def build(self, options: LocalOptions, device: str) -> Executor:
        """Count cores and cards.

        Raises:
            RequestError: there is no such device.
        """
        import torch

        from seu_bench.engine.environment import choose_device

        cores = usable_cores()
        chosen = choose_device(device)
        cards = visible_cards(os.environ, torch.cuda.device_count()) if chosen == "cuda" else []
        by_default = max(1, cores // (options.threads or 1)) if chosen == "cpu" else max(1, len(cards))
        jobs = options.jobs or by_default
        threads = options.threads or (1 if chosen == "cpu" else max(1, cores // jobs))
        return LocalExecutor(jobs, threads, cards)


def visible_cards(environment: Mapping[str, str], count: int) -> list[str]:
    """The CUDA devices that this process may use, each as ``CUDA_VISIBLE_DEVICES`` names it.

    Args:
        count: how many there are.
    """
    named = [name.strip() for name in environment.get(_CARDS, "").split(",") if name.strip()]
    return named[:count] or [str(card) for card in range(count)]


def with_share(job: Job, slots: int) -> Job:
    """A job that takes its share of the memory for features of frozen layers.

    Each run by itself would take half of what is free; together they do.
    """
    if slots == 1 or job.execution.feature_cache is not None:
        return job
    from seu_bench.models.feature_store import SHARE
    from seu_bench.utils.hardware import free_host_memory

    share = int(SHARE * free_host_memory() / slots)
    return replace(job, execution=replace(job.execution, feature_cache=share))


class LocalExecutor:
    """Jobs in processes.

    Args:
        jobs: jobs at once.
        threads: of each.
        cards: names of CUDA devices, given to the places in turn; empty: devices are left alone.
        copies: whether jobs are copies of a process that has imported everything.
    """

    def __init__(
        self, jobs: int, threads: int, cards: Sequence[str] = (), copies: bool = fork_server.AVAILABLE
    ) -> None:
        self.slots = jobs
        self._environment = {**os.environ, **dict.fromkeys(_THREADS, str(threads))}
        self._server: fork_server.ForkServer | None = None
        self._copies = copies
        self._cards = tuple(cards)
        self._free = list(range(jobs))
        self._waiting: deque[Job] = deque()
        self._running: dict[str, _Worker] = {}
        self._told: SimpleQueue[Event] = SimpleQueue()
        self._cancelled = False

    def submit(self, jobs: Sequence[Job]) -> None:
        """Begin as many as there are places."""
        self._waiting.extend(jobs)
        self._fill()

    def wait(self, seconds: float) -> Sequence[Event]:
        """What the processes told; places that have become free are filled."""
        events: list[Event] = []
        with contextlib.suppress(Empty):
            events.append(self._told.get(timeout=seconds))
            while True:
                events.append(self._told.get_nowait())
        for event in events:
            if isinstance(event, Ended) and event.run_id in self._running:
                self._free.append(self._running.pop(event.run_id).place)
        self._fill()
        return events

    def cancel(self) -> None:
        """Ask all to stop."""
        self._cancelled = True
        while self._waiting:
            job = self._waiting.popleft()
            self._told.put(Ended(run_id=job.run_id, status="interrupted", message="it was not begun"))
        for worker in self._running.values():
            worker.ask_to_stop()

    def close(self) -> None:
        """Ask what still runs to stop, a second time if it was asked before, and end it if it does not."""
        self._waiting.clear()
        running = list(self._running.values())
        try:
            for worker in running:
                worker.ask_to_stop()
            until = time.monotonic() + _PATIENCE
            for worker in running:
                worker.join(until - time.monotonic())
        finally:
            for worker in running:
                worker.kill()
            if self._server is not None:
                self._server.close()
                self._server = None

    def _fill(self) -> None:
        while self._free and self._waiting and not self._cancelled:
            job, place = self._waiting.popleft(), min(self._free)
            card = self._cards[place % len(self._cards)] if self._cards else ""
            variables, where = ({_CARDS: card}, f"cuda {card}") if card else ({}, "")
            try:
                worker = _Worker(with_share(job, self.slots), place, self._start, variables, self._told)
            except OSError as error:
                message = f"no process could be started: {error.strerror or error}"
                self._told.put(Ended(run_id=job.run_id, status="failed", message=message))
                continue
            self._free.remove(place)
            self._running[job.run_id] = worker
            self._told.put(Started(run_id=job.run_id, where=where))

    def _start(self, variables: Mapping[str, str], stdin: int, stdout: int, stderr: int) -> _Process:
        if self._copies:
            if self._server is None:
                self._server = fork_server.ForkServer(self._environment)
            return self._server.start(variables, stdin, stdout, stderr)
        # A session of its own: Ctrl-C in the terminal is the driver's, which asks each job once.
        return subprocess.Popen(
            _WORKER,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env={**self._environment, **variables},
            start_new_session=True,
        )


@hookimpl
def register_executors(register: Register[ExecutorFactory]) -> None:
    """Offer ``local``."""
    register("local", LocalFactory())


class _Worker:
    """The process of a job, and the thread that listens to it.

    Raises:
        OSError: no process can be started.
    """

    def __init__(
        self, job: Job, place: int, start: _Start, variables: Mapping[str, str], told: SimpleQueue[Event]
    ) -> None:
        self.place = place
        self._run_id = job.run_id
        self._told = told
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            self._errors = ours.enter_context(tempfile.TemporaryFile())
            stdin, self._input = _pipe(theirs, ours, ours_writes=True)
            stdout, self._output = _pipe(theirs, ours, ours_writes=False)
            self._process = start(variables, stdin, stdout, self._errors.fileno())
            self._ours = ours.pop_all()
        self._send(job.to_json().encode() + b"\n")
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def ask_to_stop(self) -> None:
        """The first time where nothing is lost, the second time at once."""
        self._send(b".")

    def join(self, seconds: float) -> None:
        """Wait for its end."""
        self._thread.join(max(0.0, seconds))

    def kill(self) -> None:
        """End it, and wait for that."""
        self._process.kill()
        self._thread.join()

    def _send(self, data: bytes) -> None:
        with contextlib.suppress(OSError, ValueError):  # it has ended; the thread tells of that
            self._input.write(data)

    def _listen(self) -> None:
        """Pass on what the process tells; that it has ended comes last, when it is gone."""
        ended: Ended | None = None
        for line in self._output:
            try:
                event = event_from_json(line)
            except ValueError:
                continue
            if isinstance(event, Ended):
                ended = event
            else:
                self._told.put(event)
        status = self._process.wait()
        self._told.put(ended or self._lost(status))
        self._ours.close()

    def _lost(self, status: int | None) -> Ended:
        """What can be said of a process that is gone without a word."""
        kind: Ending = "lost"
        if status is None:
            message = "its process is gone, and so is the one that started it"
        elif status < 0:
            name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
            message = f"its process was killed by {name}"
            message += "; perhaps memory was short" if -status == getattr(signal, "SIGKILL", None) else ""
        else:
            message = f"its process ended with status {status} without a word"
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - 4000))
        last = [line for line in self._errors.read().decode("utf-8", "replace").splitlines() if line.strip()][-1:]
        said = f": {printable(last[0])[:500]}" if last else ""
        return Ended(run_id=self._run_id, status=kind, message=message + said)


def _pipe(theirs: contextlib.ExitStack, ours: contextlib.ExitStack, *, ours_writes: bool) -> tuple[int, BinaryIO]:
    """A pipe: their end, to be closed when their process has it, and ours."""
    reading, writing = os.pipe()
    their_end, our_end = (reading, writing) if ours_writes else (writing, reading)
    theirs.callback(os.close, their_end)
    # What is written is read at once; what is read comes in lines.
    file: BinaryIO = os.fdopen(our_end, "wb" if ours_writes else "rb", buffering=0 if ours_writes else -1)
    return their_end, ours.enter_context(file)
