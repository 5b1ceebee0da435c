"""The process that copies itself: its copies are processes of their own, and what becomes of them is told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from seu_bench.sweeps.fork_server import AVAILABLE, Copy, ForkServer
from tests.sweeps.test_local import within

pytestmark = pytest.mark.skipif(not AVAILABLE, reason="processes are not copied here")


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    made = ForkServer({**os.environ, "OMP_NUM_THREADS": "1"})
    yield made
    made.close()


@pytest.fixture
def errors() -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile() as file:
        yield file


def started(server: ForkServer, job: bytes, errors: IO[bytes], **variables: str) -> Copy:
    """A copy that is given a line, and no more than that."""
    with tempfile.TemporaryFile() as told, tempfile.TemporaryFile() as given:
        given.write(job)
        given.seek(0)
        return server.start(variables, given.fileno(), told.fileno(), errors.fileno())


def waiting(server: ForkServer, errors: IO[bytes]) -> tuple[Copy, int]:
    """A copy that waits for its job, and the end of the pipe on which it does."""
    theirs, ours = os.pipe()
    with tempfile.TemporaryFile() as told:
        copy = server.start({}, theirs, told.fileno(), errors.fileno())
    os.close(theirs)
    return copy, ours


def test_ends_are_told(server: ForkServer, errors: IO[bytes]) -> None:
    """What is no job ends in a traceback and status 1, in that copy alone; the next one is made as if nothing was."""
    for _ in range(2):
        assert started(server, b'{"no": "job"}\n', errors).wait() == 1
    errors.seek(0)
    said = errors.read().decode()
    assert said.count("Traceback") == said.count("KeyError: 'run_id'") == 2


def test_killed(server: ForkServer, errors: IO[bytes]) -> None:
    """By whoever wants to be rid of it, whether or not it has begun; others live on."""
    other, pipe = waiting(server, errors)
    copy, end = waiting(server, errors)
    copy.kill()
    assert copy.wait() == -signal.SIGKILL
    assert not other._over.is_set()
    os.close(pipe)
    assert other.wait() == 1  # no job came
    os.close(end)


@pytest.mark.long
def test_server_that_is_gone(errors: IO[bytes]) -> None:
    """Nobody waits for ever: neither for a copy that it made nor for one that it will never make."""
    server = ForkServer({**os.environ})
    try:
        copy, pipe = waiting(server, errors)
        server._process.kill()
        assert copy.wait() is None
        os.close(pipe)

        def refused() -> bool:
            try:
                started(server, b"\n", errors)
            except OSError:
                return True
            return False

        assert within(10, refused)
    finally:
        server.close()


@pytest.mark.long
def test_server_without_a_driver() -> None:
    """It ends when nobody can ask for copies any more."""
    code = (
        "import os; from seu_bench.sweeps.fork_server import ForkServer\n"
        "server = ForkServer(dict(os.environ))\n"
        "print(server._process.pid, flush=True)\n"
        "os._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert within(120, lambda: not is_alive(int(done.stdout)))


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
