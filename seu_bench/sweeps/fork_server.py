"""A process that has imported all that a job needs, and makes a copy of itself for each job.

Importing torch and Avalanche takes ten seconds and more; a copy takes none of it, and knows nothing of other jobs.
Also a program, which :class:`ForkServer` starts. It has one thread, computes nothing and never touches a card, so that
its copies may do all of that.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from types import FrameType
from typing import Final

from seu_bench.utils.text import printable

#: Whether processes can be copied here, and files be handed to them. (macOS has it, but its libraries do not bear it.)
AVAILABLE: Final = sys.platform == "linux"

#: Bytes of a message at the most: a number and a few variables of the environment.
_MESSAGE: Final = 65536
#: Modules that each job imports sooner or later, and all that they import; the last for scikit-learn's digits.
_NEEDED: Final = (
    "seu_bench.engine.checkpoint_manager",
    "seu_bench.engine.recorder",
    "seu_bench.engine.saved_model.file",
    "seu_bench.engine.recorder",
    "seu_bench.engine.runner",
    "seu_bench.training.strategy",
    "seu_bench.data.streams",
    "seu_bench.sweeps.worker",
    "sklearn.datasets",
)
#: Standard input, output and error.
_FILES: Final = 3


class Copy:
    """A copy of the server, which makes one job."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._pid: int | None = None
        self._status: int | None = None
        self._unwanted = False

    def wait(self) -> int | None:
        """Its exit status once it is gone, as ``subprocess`` has it: negative for a signal; ``None``: nobody knows."""
        self._over.wait()
        return self._status

    def kill(self) -> None:
        """End it; what is not there yet will not stay."""
        with self._lock:
            self._unwanted = True
            if self._pid is not None and not self._over.is_set():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGKILL)

    def began(self, pid: int) -> None:
        """It is there."""
        with self._lock:
            self._pid = pid
        if self._unwanted:
            self.kill()

    def ended(self, status: int | None) -> None:
        """It is gone."""
        with self._lock:
            self._status = status
            self._over.set()


class ForkServer:
    """The server, started and spoken to by whoever wants copies.

    Args:
        environment: of the server, and of its copies but for what is given with each.

    Raises:
        OSError: no process can be started.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the server
        self._copies: dict[int, Copy] = {}
        self._lock = threading.Lock()
        self._number = 0
        self._is_gone = False
        try:
            with theirs:
                # -P: a file in the working folder is no module of ours. A session of its own: Ctrl-C is the driver's.
                self._process = subprocess.Popen(
                    (sys.executable, "-P", "-m", "seu_bench.sweeps.fork_server", str(theirs.fileno())),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=self._errors,
                    env=environment,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
        except BaseException:
            self._channel.close()
            self._errors.close()
            raise
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def start(self, environment: Mapping[str, str], stdin: int, stdout: int, stderr: int) -> Copy:
        """Have a copy made that runs :func:`seu_bench.sweeps.worker.main`; returns at once.

        Args:
            environment: variables that it has besides the server's.
            stdin, stdout, stderr: file descriptors; they stay the caller's to close.

        Raises:
            OSError: the server is gone.
        """
        copy = Copy()
        with self._lock:
            if self._is_gone:
                raise ConnectionError(self._last_words())
            self._number += 1
            number = self._number
            self._copies[number] = copy
        message = json.dumps({"number": number, "environment": dict(environment)}).encode()
        try:
            socket.send_fds(self._channel, [message], [stdin, stdout, stderr])
        except BaseException:
            with self._lock:
                self._copies.pop(number, None)
            raise
        return copy

    def close(self) -> None:
        """End the server; copies stay."""
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)
        self._process.kill()
        self._process.wait()
        self._thread.join()
        self._channel.close()
        self._errors.close()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while message := self._channel.recv(_MESSAGE):
                told = json.loads(message)
                with self._lock:
                    copy = self._copies[told["number"]]
                    if "pid" not in told:
                        del self._copies[told["number"]]
                if "pid" in told:
                    copy.began(told["pid"])
                else:
                    copy.ended(told["status"])
        with self._lock:
            self._is_gone = True
            left, self._copies = list(self._copies.values()), {}
        for copy in left:
            copy.ended(None)

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = [line for line in self._errors.read().decode("utf-8", "replace").splitlines() if line.strip()]
        return "the process that starts jobs is gone" + (f": {printable(lines[-1])[:500]}" if lines else "")


def serve(channel: socket.socket) -> None:
    """Make copies as they are asked for, and tell how they end, until nobody can ask any more."""
    _note_revision()
    import_all()
    children: dict[int, int] = {}
    awake, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(awake, False)
    signal.signal(signal.SIGCHLD, _ignored)  # a handler of Python's own: the default one wakes nobody
    signal.set_wakeup_fd(wake)
    while True:
        ready, _, _ = select.select([channel.fileno(), awake], [], [])
        if awake in ready:
            os.read(awake, _MESSAGE)
            _tell_ends(channel, children)
        if channel.fileno() not in ready:
            continue
        message, files, _, _ = socket.recv_fds(channel, _MESSAGE, _FILES)
        if not message:
            return
        asked = json.loads(message)
        pid = os.fork()
        if not pid:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for file in (channel.fileno(), awake, wake):
                os.close(file)
            _be_a_worker(asked["environment"], files)
        for file in files:
            os.close(file)
        children[pid] = asked["number"]
        channel.send(json.dumps({"number": asked["number"], "pid": pid}).encode())


def _note_revision() -> None:
    """Records of copies name the code that is imported here, even if the checkout is changed while they are made."""
    from seu_bench.engine.environment import REVISION, code_revision

    if revision := code_revision():
        os.environ[REVISION] = revision


def import_all() -> None:
    """What takes long and jobs need, whatever they learn with: ours, Avalanche's, and the outer modules of plugins."""
    from seu_bench.plugin.registry import Registry

    for name in _NEEDED:
        importlib.import_module(name)
    Registry()


def _tell_ends(channel: socket.socket, children: dict[int, int]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        ended = {"number": children.pop(pid), "status": os.waitstatus_to_exitcode(status)}
        channel.send(json.dumps(ended).encode())


def _be_a_worker(environment: Mapping[str, str], files: list[int]) -> None:
    """Never returns: what the server would do next is none of a copy's business."""
    status = 1
    try:
        os.setsid()
        for place, file in enumerate(files):
            os.dup2(file, place)
            os.close(file)
        os.environ.update(environment)
        from seu_bench.sweeps.worker import main

        main()
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(status)


def _ignored(_number: int, _frame: FrameType | None) -> None:
    """That the signal comes is all that matters."""


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as _channel, contextlib.suppress(BrokenPipeError, ConnectionResetError):
        serve(_channel)
