"""Loggers that talk to another machine, in a process of their own.

A server that does not answer must not keep a run waiting, nor a signal: a thread feeds the process from a bounded
queue and gives it up when it takes too long. The process draws no random number of the run's. What was not sent is in
the record, from which ``seu-bench log`` sends it later.

Messages are lines of JSON: to the process what to do, from it whether that was done.
"""

from __future__ import annotations

import contextlib
import json
import queue
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any, Final

from seu_bench.plugin.loggers import LoggedRun, LoggedValues, RunLogger
from seu_bench.utils.text import error_line

#: Messages that may wait to be sent; each is what one epoch or task measured.
WAITING: Final = 1000
#: Seconds that the process may take for one message, the first of which imports and connects.
ANSWER_WITHIN: Final = 60.0
#: Seconds that the end of a run waits for what was not sent yet; the second number where the run was interrupted.
END_WITHIN: Final = (30.0, 1.0)


class LoggerProcessError(Exception):
    """A logger's process failed.

    Args:
        call: in which call.
        reason: why.
    """

    def __init__(self, call: str, reason: str) -> None:
        self.call = call
        super().__init__(reason)


class OnceLogger:
    """Passes numbers on to a logger once, also where an earlier process logged some of them."""

    def __init__(self, logger: RunLogger) -> None:
        self._logger = logger
        self._logged: dict[str, int] = {}

    def log(self, measured: LoggedValues) -> None:
        """Log what is new."""
        for name in measured.values:
            if name not in self._logged:
                last = self._logger.last_step(name)
                self._logged[name] = -1 if last is None else last
        new = {name: value for name, value in measured.values.items() if measured.step > self._logged[name]}
        if new:
            self._logger.log(replace(measured, values=new))
        self._logged |= dict.fromkeys(new, measured.step)


class LoggerProcess:
    """A :class:`~seu_bench.plugin.loggers.RunLogger` whose calls return at once, and are made in another process.

    A call raises :class:`LoggerProcessError` if an earlier one failed or took too long.

    Args:
        name, options, folder: of the logger, as its factory is given them.
        answer_within: seconds that the process may take for one message; :data:`ANSWER_WITHIN` by default.
        end_within: seconds that :meth:`end` waits for what was not sent yet, of a run that ended by itself and of one
            that was interrupted; :data:`END_WITHIN` by default.
    """

    def __init__(
        self,
        name: str,
        options: Mapping[str, Any],
        folder: Path,
        *,
        answer_within: float | None = None,
        end_within: tuple[float, float] | None = None,
    ) -> None:
        self._answer_within = ANSWER_WITHIN if answer_within is None else answer_within
        self._end_within = END_WITHIN if end_within is None else end_within
        self._queue: queue.Queue[dict[str, Any]] = queue.Queue(WAITING)
        self._failure: LoggerProcessError | None = None
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is the run's
        )
        self._put({"call": "build", "name": name, "options": dict(options), "folder": str(folder.absolute())})
        self._feeder = threading.Thread(target=self._feed, name=f"logger {name}", daemon=True)
        self._feeder.start()

    def begin(self, run: LoggedRun) -> None:
        """Queue it."""
        self._put({"call": "begin", **asdict(run)})

    def last_step(self, name: str) -> int | None:
        """``None``: the process asks, and passes on what is new."""
        return None

    def log(self, measured: LoggedValues) -> None:
        """Queue it."""
        self._put({"call": "log", **asdict(measured)})

    def end(self, status: str) -> None:
        """Queue it, wait for what was not sent yet, but not long, and end the process."""
        try:
            self._put({"call": "end", "status": status})
            self._process_ended(self._end_within[status == "interrupted"])
            if self._failure is not None:
                raise self._failure
        finally:
            self.close()

    def close(self) -> None:
        """End the process at once."""
        with contextlib.suppress(OSError):
            self._process.kill()
        self._process.wait()
        self._failure = self._failure or LoggerProcessError("end", "it was closed")
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait({"call": "end", "status": ""})  # wakes the feeder, which finds nobody to talk to
        self._feeder.join(1.0)
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError, ValueError):
                if pipe is not None:
                    pipe.close()

    def _process_ended(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self._failure is None and self._process.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        if self._failure is None and self._process.poll() is None:
            self._failure = LoggerProcessError("end", f"not all was sent within {seconds:g} seconds")

    def _put(self, message: dict[str, Any]) -> None:
        if self._failure is not None:
            raise self._failure
        try:
            self._queue.put_nowait(message)
        except queue.Full:
            self._failure = LoggerProcessError(message["call"], f"{WAITING} messages wait to be sent")
            raise self._failure from None

    def _feed(self) -> None:
        """Send messages one after another, in a thread, until the last one or the first that fails."""
        messages, answers = self._process.stdin, self._process.stdout
        if messages is None or answers is None:
            return
        call = ""
        try:
            while call != "end":
                message = self._queue.get()
                call = message["call"]
                messages.write(json.dumps(message).encode() + b"\n")
                messages.flush()
                if reason := self._answer(answers):
                    raise LoggerProcessError("begin" if call == "build" else call, reason)
            messages.close()
        except LoggerProcessError as error:
            self._failure = error
        except (OSError, ValueError) as error:
            self._failure = LoggerProcessError(call, f"its process is gone: {error}")

    def _answer(self, answers: IO[bytes]) -> str:
        """Why the process could not do what it was told; empty: it did."""
        with selectors.DefaultSelector() as selector:
            selector.register(answers, selectors.EVENT_READ)
            if not selector.select(self._answer_within):
                return f"no answer within {self._answer_within:g} seconds"
        line = answers.readline()
        if not line:
            return "its process is gone"
        answer = json.loads(line)
        return str(answer["error"]) if "error" in answer else ""


def serve(messages: IO[bytes], answers: IO[bytes]) -> None:
    """Do what the messages say with the logger that the first one names: the process's own main function."""
    logger: RunLogger | None = None
    once: OnceLogger | None = None
    for line in messages:
        message = json.loads(line)
        call = message.pop("call")
        try:
            if call == "build":
                logger = _build(**message)
                once = OnceLogger(logger)
            elif logger is None or once is None:
                raise ValueError("there is no logger yet")
            elif call == "begin":
                logger.begin(LoggedRun(**message))
            elif call == "log":
                once.log(LoggedValues(**message))
            else:
                logger.end(**message)
            answer = {"done": call}
        except (Exception, SystemExit) as error:  # told to the run, which says so and continues
            answer = {"error": error_line(error)}
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


def _build(name: str, options: dict[str, Any], folder: str) -> RunLogger:
    from seu_bench.config.options import build_options
    from seu_bench.plugin.registry import Registry

    factory = Registry().loggers.find(name).factory
    return factory.build(build_options(factory.options, f"logger {name!r}", options), Path(folder))


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
