"""The executor ``local``: a process of its own for each cell, as many at once as there are cores, or cards."""

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
from collections.abc import Mapping, Sequence
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import Any, Final

from pydantic import Field

from seu_bench.cores import usable_cores
from seu_bench.executors import Ended, Ending, Event, Executor, Started, SweepCell, event_from_json
from seu_bench.options import Options
from seu_bench.wording import printable

#: Seconds that cells have to stop when the driver leaves; they need two and the time of writing a checkpoint.
_PATIENCE: Final = 10.0
#: Read by the libraries that compute, when they are imported.
_THREADS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_CARDS: Final = "CUDA_VISIBLE_DEVICES"
#: What a process does that is started for a cell; ``-P``: a file in the working folder is no module of ours.
_WORKER: Final = (sys.executable, "-P", "-m", "seu_bench.sweep_worker")


class LocalOptions(Options):
    """How many cells at once, and what each is given."""

    jobs: int | None = Field(None, ge=1, description="cells at once; else cores over threads, or one for each card")
    threads: int | None = Field(None, ge=1, description="of each cell; else 1, or with cards the cores shared out")


class LocalFactory:
    """Processes of this machine."""

    summary = "a process for each cell on this machine, as many at once as there are cores, or cards"
    options: type[Options] = LocalOptions
    detaches = False

    def build(self, options: LocalOptions, device: str) -> Executor:
        """Count cores and cards.

        Raises:
            RequestError: there is no such device.
        """
        import torch

        from seu_bench.environment import choose_device

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


def with_share(cell: SweepCell, slots: int) -> SweepCell:
    """A cell that takes its share of the memory for features of frozen layers.

    Each run by itself would take half of what is free; together they do.
    """
    if slots == 1 or cell.execution.feature_cache is not None:
        return cell
    from seu_bench.memory import SHARE, free_host_memory

    share = int(SHARE * free_host_memory() / slots)
    return replace(cell, execution=replace(cell.execution, feature_cache=share))


class LocalExecutor:
    """Cells in processes.

    Args:
        jobs: cells at once.
        threads: of each.
        cards: names of CUDA devices, given to the places in turn; empty: devices are left alone.
    """

    def __init__(self, jobs: int, threads: int, cards: Sequence[str] = ()) -> None:
        self.slots = jobs
        self._threads = threads
        self._cards = tuple(cards)
        self._free = list(range(jobs))
        self._waiting: deque[SweepCell] = deque()
        self._running: dict[str, _Worker] = {}
        self._told: SimpleQueue[Event] = SimpleQueue()
        self._cancelled = False

    def submit(self, cells: Sequence[SweepCell]) -> None:
        """Begin as many as there are places."""
        self._waiting.extend(cells)
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
            cell = self._waiting.popleft()
            self._told.put(Ended(run_id=cell.run_id, status="interrupted", message="it was not begun"))
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

    def _fill(self) -> None:
        while self._free and self._waiting and not self._cancelled:
            cell, place = self._waiting.popleft(), min(self._free)
            environment = {**os.environ, **dict.fromkeys(_THREADS, str(self._threads))}
            where = ""
            if self._cards:
                card = self._cards[place % len(self._cards)]
                environment[_CARDS] = card
                where = f"cuda {card}"
            try:
                worker = _Worker(with_share(cell, self.slots), place, environment, self._told)
            except OSError as error:
                message = f"no process could be started: {error.strerror or error}"
                self._told.put(Ended(run_id=cell.run_id, status="failed", message=message))
                continue
            self._free.remove(place)
            self._running[cell.run_id] = worker
            self._told.put(Started(run_id=cell.run_id, where=where))


class _Worker:
    """The process of a cell, and the thread that listens to it.

    Raises:
        OSError: no process can be started.
    """

    def __init__(self, cell: SweepCell, place: int, environment: Mapping[str, str], told: SimpleQueue[Event]) -> None:
        self.place = place
        self._run_id = cell.run_id
        self._told = told
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - the thread closes it
        try:
            # A session of its own: Ctrl-C in the terminal is the driver's, which asks each cell once.
            self._process = subprocess.Popen(
                _WORKER,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=environment,
                start_new_session=True,
            )
        except BaseException:
            self._errors.close()
            raise
        self._send(cell.to_json().encode() + b"\n")
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
        pipe: Any = self._process.stdin
        with contextlib.suppress(OSError, ValueError):  # it has ended; the thread tells of that
            pipe.write(data)
            pipe.flush()

    def _listen(self) -> None:
        """Pass on what the process tells; that it has ended comes last, when it is gone."""
        ended: Ended | None = None
        pipe: Any = self._process.stdout
        with pipe:
            for line in pipe:
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
        self._errors.close()
        with contextlib.suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]

    def _lost(self, status: int) -> Ended:
        """What can be said of a process that is gone without a word."""
        kind: Ending = "lost"
        if status < 0:
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
