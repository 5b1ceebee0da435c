"""Seconds left of a run, by the image passes that are planned and done."""

from __future__ import annotations

import pytest

from seu_bench.engine.forecast import Forecast
from seu_bench.training.stage import EpochReport, StageProgress


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def report(passes: int, *, task: int = 0, done: bool = False) -> StageProgress:
    return StageProgress("training", task, 1, 4, EpochReport(0.5, None), passes, 2.0, done)


def test_forecast() -> None:
    """Seconds left are the image passes left over the speed so far; stages that ended count once."""
    clock = Clock()
    forecast = Forecast(1000, clock)
    assert forecast.left is None
    forecast.see(report(100))
    assert forecast.left is None  # no time has passed
    clock.now += 10
    assert (forecast.passed, forecast.measured, forecast.left) == (100, 10, pytest.approx(90))
    forecast.see(report(200, done=True))
    clock.now += 10
    assert (forecast.passed, forecast.left) == (200, pytest.approx(80))
    forecast.see(report(50, task=1))
    assert (forecast.passed, forecast.left) == (250, pytest.approx(60))


def test_forecast_of_a_run_that_goes_on() -> None:
    """Image passes of an earlier attempt count as done, and say nothing of the speed."""
    clock = Clock()
    forecast = Forecast(1000, clock, before=300)
    forecast.see(report(100))
    assert (forecast.passed, forecast.left) == (400, None)
    forecast.see(report(200))
    clock.now += 10
    assert (forecast.passed, forecast.left) == (500, pytest.approx(50))


def test_forecast_is_never_negative() -> None:
    """A run that does more than was planned has nothing left."""
    clock = Clock()
    forecast = Forecast(10, clock)
    clock.now += 1
    forecast.see(report(20))
    assert forecast.left == 0
