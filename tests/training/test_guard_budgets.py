"""Budgets of plugins' stages are counted: images and epochs."""

from __future__ import annotations

import signal
import sys
import threading
from typing import Any

import pytest
from support.guarded import NAMED, Plain, guarded
from support.tiny import all_threads, one_thread

from seu_bench.errors import RunError
from seu_bench.training.stage import StageProgress

setup_module, teardown_module = one_thread, all_threads


def test_processor_time_is_the_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU time of the plugin's epochs and of its result is summed, and reported with the last progress."""
    clock = iter(range(1, 100))
    monkeypatch.setattr("seu_bench.training.stage.time.process_time", lambda: float(next(clock)))
    seen: list[StageProgress] = []
    stage = guarded(Plain)
    stage.run(seen.append)
    # Each of three epochs takes one tick; the guard's own measurement of the result is around that of the plugin's.
    assert stage.inner.cpu_seconds == 3.0
    assert stage.cpu_seconds == seen[-1].cpu_seconds == 4.0


@pytest.mark.parametrize("place", ["epoch", "result"])
@pytest.mark.parametrize("watched", [True, False])
def test_budget_is_kept_image_by_image(place: str, watched: bool) -> None:
    """A loop without an end is stopped at the first image beyond the budget, whether or not anybody watches."""
    counted: list[int] = []

    def for_ever(stage: Any) -> Any:
        while True:
            counted.append(1)
            stage.passed(1)

    class Endless(Plain):
        result = for_ever if place == "result" else Plain.result

    stage = guarded(lambda: Endless(3, None if place == "result" else for_ever), passes=50)
    with pytest.raises(RunError, match=NAMED + "it passed 51 images forward, and had announced 50 at most") as caught:
        stage.run((lambda progress: None) if watched else None)
    assert caught.value.remedy is not None and "estimate_passes" in caught.value.remedy
    assert len(counted) == (39 if place == "result" else 47)


def test_budget_that_is_swallowed() -> None:
    """A plugin that catches the error meets it at the next image, and at the end of the epoch at the latest."""
    raised: list[str] = []

    def swallow(stage: Any) -> None:
        for _ in range(3):
            try:
                stage.passed(20)
            except RunError as error:
                raised.append(error.what)

    with pytest.raises(RunError, match=NAMED + "it passed 64 images forward, and had announced 10 at most"):
        guarded(lambda: Plain(1, swallow), passes=10).run()
    assert len(raised) == 3


def test_budget_after_resuming() -> None:
    """Images before an interruption count."""
    first = guarded(Plain, passes=9)
    first.advance()
    second = guarded(Plain, passes=9)
    second.load_state_dict(first.state_dict())
    second.advance()
    with pytest.raises(RunError, match="it passed 12 images forward, and had announced 9 at most"):
        second.advance()


def test_epochs_are_a_budget() -> None:
    """A stage may neither raise its number of epochs nor go back in it."""

    def longer(stage: Any) -> None:
        stage.epochs += 1

    def rewind(stage: Any) -> None:
        stage.epoch = -1

    with pytest.raises(RunError, match=NAMED + "it does not end: its 3 epochs became 4 while it ran"):
        guarded(lambda: Plain(act=longer)).run()
    with pytest.raises(RunError, match=NAMED + "it does not end: it stands at epoch 0 after 1 epochs"):
        guarded(lambda: Plain(act=rewind)).run()


def test_no_signal_is_touched() -> None:
    """Alarms are the caller's: handlers and timers are left alone while a plugin computes, in whatever thread."""
    seen: list[object] = []
    before = (signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL), sys.unraisablehook)

    def look(_: object) -> None:
        seen.append((signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL), sys.unraisablehook))

    guarded(lambda: Plain(act=look)).run(look)
    thread = threading.Thread(target=lambda: guarded(lambda: Plain(act=look)).run(look))
    thread.start()
    thread.join(60)
    assert seen == [before] * 14
