"""Runs the command line on hostile files, each time in a forked process. Started by test_edges, as a process of its
own, so that what is slow to import is imported once.

Started as root on Linux, everything but the folder that it is given is read-only, and devices are private ones.

A request is a line of JSON: ``arguments`` of the command, and the working ``folder``. The answer is a line of JSON:
``status`` (negative: killed by that signal; SIGALRM: it hung), and the end of what it ``said``.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

#: Seconds of wall clock after which a command hangs, and bytes of memory that it may take.
HANGS, MEMORY = 60, 8 * 2**30
#: Bytes of what a command says that are looked at.
SAID = 20_000


def start(folder: Path) -> subprocess.Popen[str]:
    """Start the server; only ``folder`` can be written to, where that can be had."""
    serve = [sys.executable, __file__]
    if can_isolate():
        devices = ("null 3", "zero 5", "full 7", "random 8", "urandom 9")
        setup = " && ".join(
            (
                "mount --make-rprivate /",
                f"mount --bind {folder} {folder}",
                "mount -o remount,bind,ro /",
                "mount -t tmpfs none /dev",
                *(f"mknod -m 666 /dev/{name} c 1 {minor}" for name, minor in map(str.split, devices)),
                "ln -s /proc/self/fd/1 /dev/stdout",
                'exec "$@"',
            )
        )
        serve = ["unshare", "--mount", "sh", "-c", setup, "sh", *serve]
    environment = {**os.environ, "TMPDIR": str(folder), "HOME": str(folder), "SEU_BENCH_DATA": str(folder / "no-data")}
    return subprocess.Popen(serve, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def can_isolate() -> bool:
    """Whether this process may make a root of its own."""
    if shutil.which("unshare") is None:
        return False
    tried = subprocess.run(["unshare", "--mount", "mount", "--make-rprivate", "/"], capture_output=True, check=False)
    return tried.returncode == 0


def serve(request: dict[str, Any]) -> dict[str, Any]:
    """Fork, run, wait."""
    with tempfile.TemporaryFile() as said:
        process = os.fork()
        if process == 0:
            run(request, said.fileno())
        _, status = os.waitpid(process, 0)
        size = said.seek(0, os.SEEK_END)
        said.seek(max(0, size - SAID))
        text = said.read().decode(errors="replace")
    return {"status": os.waitstatus_to_exitcode(status), "said": text}


def run(request: dict[str, Any], said: int) -> None:
    """The command, in the process that does not come back."""
    status = 99
    try:
        for number in (1, 2):
            os.dup2(said, number)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**28, 2**28))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        signal.alarm(HANGS)
        os.chdir(request["folder"])
        sys.argv = ["seu-bench", *request["arguments"]]
        from seu_bench.cli.main import main

        main()
    except SystemExit as left:
        status = left.code if isinstance(left.code, int) else 98
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    import avalanche.training  # noqa: F401
    import torch

    import seu_bench.engine.runner
    import seu_bench.engine.verification
    import seu_bench.results.leaderboard
    import seu_bench.results.report  # noqa: F401

    torch.set_num_threads(1)
    for line in sys.stdin:
        gc.freeze()
        sys.stdout.write(json.dumps(serve(json.loads(line))) + "\n")
        sys.stdout.flush()
    gc.unfreeze()
