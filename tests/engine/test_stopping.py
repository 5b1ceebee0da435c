"""Signals: a wish first, an order after a while or the second time, and nothing at all while the run is being ended."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from seu_bench.engine.stopping import StopRequest
from seu_bench.errors import ExitStatus, Interruption


@pytest.fixture(autouse=True)
def heeded() -> Iterator[None]:
    """SIGHUP as in a terminal: whoever runs the tests by nohup has it ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def send(number: int) -> None:
    """A signal to this process, which its handler has seen when this returns."""
    os.kill(os.getpid(), number)
    time.sleep(0)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_first_asks_second_stops(number: int, status: int) -> None:
    """After the first one the run may come to a point where nothing is lost; the second does not wait for it."""
    before = signal.getsignal(number)
    stop = StopRequest(grace=60)
    with stop.on_signals():
        assert stop.due() is None
        send(number)
        due = stop.due()
        assert due is not None and due.exit_code == status
        assert due.reason == f"interrupted by {signal.Signals(number).name}"
        with pytest.raises(Interruption) as stopped:
            send(number)
        assert stopped.value.exit_code == status
    assert signal.getsignal(number) == before


def test_grace() -> None:
    """Whoever does not come to such a point is interrupted where he is."""
    stop = StopRequest(grace=0.2)
    with stop.on_signals(), pytest.raises(Interruption):
        send(signal.SIGTERM)
        signal.pause()  # ends by a signal alone


def test_settled() -> None:
    """While the record is written neither the clock nor the user disturbs."""
    stop = StopRequest(grace=0.1)
    with stop.on_signals():
        send(signal.SIGTERM)
        stop.settle()
        send(signal.SIGTERM)
        time.sleep(0.3)


def test_in_another_thread() -> None:
    """Signals are the main thread's business; elsewhere nothing is changed."""
    before = signal.getsignal(signal.SIGTERM)
    seen: list[object] = []

    def work() -> None:
        with StopRequest().on_signals():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


def test_time_limit() -> None:
    """A stage that would end behind the limit is not begun."""
    stop = StopRequest(max_seconds=1000.0)
    assert stop.due(ahead=900.0) is None
    due = stop.due(ahead=1001.0)
    assert due is not None and (due.exit_code, due.reason) == (
        ExitStatus.OUT_OF_TIME,
        "stopped by its time limit of 1000 seconds",
    )
    assert StopRequest().due(ahead=1e12) is None
