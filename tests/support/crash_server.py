"""Runs the command line in forked processes that die where they are told to. Started by test_crashes, as a process of
its own, so that what is slow to import is imported once.

A request is a line of JSON: ``arguments`` of the command, and where to die or stop: ``kind`` and ``at``.

========== =====================================================================================
``passes``  SIGKILL when so many batches were passed forward, over all stages
``before``  SIGKILL before the file of this number is renamed
``after``   SIGKILL after it was
``time``    SIGKILL when so many milliseconds are over, wherever the command is then
``term``    SIGTERM when so many batches were passed forward; likewise ``int``
``count``   never; the answer holds how many batches and renamed files there were
========== =====================================================================================

The answer is a line of JSON: ``status`` (negative: killed by that signal), ``counts``, ``err``.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from seu_bench.cli.main import main
from seu_bench.training.stage import Stage

SIGNALS = {"passes": signal.SIGKILL, "term": signal.SIGTERM, "int": signal.SIGINT}


def watch_passes(strike: Callable[[int], None]) -> None:
    """Call ``strike`` with the number of batches so far, after each."""
    counted = Stage.count_images
    number = 0

    def passed(stage: Stage[Any], images: int) -> None:
        nonlocal number
        counted(stage, images)
        number += 1
        strike(number)

    Stage.count_images = passed  # type: ignore[method-assign]


def watch_renames(before: Callable[[int], None], after: Callable[[int], None]) -> None:
    """Call both with the number of a file that is renamed over another."""
    replace = os.replace  # Path.replace calls it as well
    number = 0

    def replaced(*arguments: Any, **keywords: Any) -> None:
        nonlocal number
        number += 1
        before(number)
        replace(*arguments, **keywords)
        after(number)

    os.replace = replaced  # type: ignore[assignment]


def child(request: dict[str, Any], counts: dict[str, int]) -> None:
    """The command, which may not come back."""
    kind, at = request["kind"], request["at"]

    def strike(what: str, number: int, signals: Mapping[str, signal.Signals]) -> None:
        counts[what] = number
        if number == at and kind in signals:
            os.kill(os.getpid(), signals[kind])

    watch_passes(lambda number: strike("passes", number, SIGNALS))
    watch_renames(
        lambda number: strike("renames", number, {"before": signal.SIGKILL}),
        lambda number: strike("renames", number, {"after": signal.SIGKILL}),
    )
    if kind == "time":
        timer = threading.Timer(at / 1000, os.kill, (os.getpid(), signal.SIGKILL))
        timer.daemon = True
        timer.start()
    sys.argv = ["seu-bench", *request["arguments"]]
    main()


def serve(request: dict[str, Any]) -> dict[str, Any]:
    """Fork, run, wait."""
    with tempfile.TemporaryDirectory() as folder:
        err, answer = Path(folder, "err"), Path(folder, "answer")
        known = set(sys.modules)
        process = os.fork()
        if process == 0:
            found: dict[str, Any] = {"counts": {}, "modules": []}
            for name, number in ((os.devnull, 1), (str(err), 2)):
                handle = os.open(name, os.O_WRONLY | os.O_CREAT)
                os.dup2(handle, number)
            status = 1
            try:
                child(request, found["counts"])
            except SystemExit as left:
                status = left.code if isinstance(left.code, int) else 1
            finally:
                found["modules"] = [name for name in sys.modules if name not in known]
                answer.write_text(json.dumps(found))
                sys.stderr.flush()
                os._exit(status)
        _, status = os.waitpid(process, 0)
        # It is empty where the kill came between its making and its writing.
        told = answer.read_text() if answer.is_file() else ""
        return {
            "status": os.waitstatus_to_exitcode(status),
            "err": err.read_text(errors="replace"),
            **(json.loads(told) if told else {"counts": {}, "modules": []}),
        }


def import_all(names: Sequence[str]) -> None:
    """Import what a command needed, so that those forked after it find it."""
    for name in names:
        with contextlib.suppress(Exception):
            importlib.import_module(name)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for line in sys.stdin:
        gc.freeze()  # or each fork's collections would walk over, and copy, all that was imported
        answer = serve(json.loads(line))
        import_all(answer.pop("modules"))
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    gc.unfreeze()
