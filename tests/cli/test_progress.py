"""Display of a run: bars on a terminal, plain lines elsewhere, and an early notice if it will take long."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from rich.console import Console

from seu_bench.cli import progress as progress_module
from seu_bench.cli.progress import ProgressDisplay, duration
from seu_bench.engine.forecast import Forecast
from seu_bench.results.record import Record
from seu_bench.training.interfaces import Cost, StageCost
from seu_bench.training.stage import EpochReport, StageProgress

RECORD = Record(
    run_id="x",
    status="running",
    strategy="naive",
    benchmark="split_cifar10",
    benchmark_version=1,
    protocol="paper",
    seed=7,
    task_names=("cats [red]", "dogs"),
)


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def cost(passes: int) -> Cost:
    return Cost((1, 1), (1, 1), (1, 1), (1, 1), (StageCost("training", 0, passes, 0),))


def report(
    passes: int, *, task: int = 0, epoch: int = 1, stage: str = "training", done: bool = False, acc: float | None = None
) -> StageProgress:
    return StageProgress(stage, task, epoch, 4, EpochReport(0.5, acc), passes, 2.0, done)


def display(
    monkeypatch: pytest.MonkeyPatch, *, terminal: bool = False, shorter: str | None = "quick"
) -> tuple[ProgressDisplay, Clock, StringIO]:
    """A display on a page of text, with a clock that is set by hand."""
    clock, page = Clock(), StringIO()
    console = Console(file=page, force_terminal=terminal, width=200, color_system=None)
    monkeypatch.setattr(progress_module, "Forecast", lambda planned, before=0: Forecast(planned, clock, before))
    return ProgressDisplay(console, shorter), clock, page


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-:--"), (0, "0:00"), (59.6, "1:00"), (61, "1:01"), (3599.6, "1:00:00"), (36_061, "10:01:01")],
)
def test_duration(seconds: float | None, text: str) -> None:
    """Durations read as a clock does."""
    assert duration(seconds) == text


def test_long_run_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first seconds, once, with the protocol that is shorter."""
    shown, clock, page = display(monkeypatch)
    shown.run_started(record=RECORD, cost=cost(1_000_000))
    clock.now += 4
    shown.stage_progress(progress=report(400))
    assert "will take" not in page.getvalue()
    clock.now += 2
    shown.stage_progress(progress=report(600))
    assert "this run will take about 2:46:34 more; --protocol quick is shorter\n" in page.getvalue()
    clock.now += 100
    shown.stage_progress(progress=report(700))
    assert page.getvalue().count("will take") == 1


def test_long_run_without_a_shorter_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    """No protocol is made up."""
    shown, clock, page = display(monkeypatch, shorter=None)
    shown.run_started(record=RECORD, cost=cost(1_000_000))
    clock.now += 6
    shown.stage_progress(progress=report(600))
    assert "will take about 2:46:34 more\n" in page.getvalue()
    assert "--protocol" not in page.getvalue()


@pytest.mark.parametrize(("passes", "said"), [(360_000, False), (361_000, True)])
def test_an_hour_is_the_limit(monkeypatch: pytest.MonkeyPatch, passes: int, said: bool) -> None:
    """An hour passes without a word; more does not."""
    shown, clock, page = display(monkeypatch)
    shown.run_started(record=RECORD, cost=cost(passes))
    clock.now += 6
    shown.stage_progress(progress=report(600))
    assert ("will take" in page.getvalue()) is said


def test_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal: a line at the start, one for each stage and one at the end, and no control characters."""
    shown, clock, page = display(monkeypatch)
    shown.run_started(record=RECORD, cost=cost(1200))
    clock.now += 1
    for passes in (100, 200, 300):
        shown.stage_progress(progress=report(passes))
    shown.stage_progress(progress=report(400, epoch=4, done=True, acc=0.875))
    clock.now += 1
    shown.stage_progress(progress=report(200, task=1, epoch=1, stage="evaluation", done=True))
    shown.run_finished(record=RECORD.model_copy(update={"status": "finished", "seconds": 61.0}))
    assert page.getvalue().splitlines() == [
        "naive on split_cifar10 (paper), seed 7: 2 tasks, 1,200 image passes",
        "task 1/2 training: 4 epochs in 2.0 s, accuracy 0.875, about 0:02 left",
        "task 2/2 evaluation: 1 epoch in 2.0 s, accuracy not measured, about 0:02 left",
        "finished after 1:01",
    ]


def test_bars_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bar for the run with the time left, one for the stage with its epoch and accuracy; closed at the end."""
    shown, clock, page = display(monkeypatch, terminal=True)
    shown.run_started(record=RECORD, cost=cost(1000))
    clock.now += 10
    shown.stage_progress(progress=report(250, task=1, epoch=2, acc=0.5))
    shown.bars.refresh()
    drawn = page.getvalue()
    assert re.search(r"run +\S+ +25% \d:\d\d:\d\d ETA 0:30", drawn)
    assert re.search(r"task 2/2 training, epoch 3/4 +\S+( \S+)? +50% \d:\d\d:\d\d accuracy 0.500", drawn)
    shown.stage_progress(progress=report(1000, task=1, epoch=4, done=True))
    shown.bars.refresh()
    assert "100%" in page.getvalue()
    assert "task 2/2 training: " not in page.getvalue()  # the lines are for where no bars are
    shown.run_finished(record=RECORD.model_copy(update={"status": "failed", "seconds": 2.0}))
    assert not shown.bars.live.is_started
    assert page.getvalue().rstrip().endswith("failed after 0:02")


def test_the_cursor_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bars hide the terminal's cursor, and show it again when a run ends in any way."""
    shown, _, page = display(monkeypatch, terminal=True)
    shown.run_started(record=RECORD, cost=cost(1000))
    assert page.getvalue().count("\x1b[?25l") == 1
    shown.run_finished(record=RECORD.model_copy(update={"status": "interrupted"}))
    assert page.getvalue().count("\x1b[?25h") == 1


def test_long_run_says_so_above_the_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal too."""
    shown, clock, page = display(monkeypatch, terminal=True)
    shown.run_started(record=RECORD, cost=cost(1_000_000))
    clock.now += 6
    shown.stage_progress(progress=report(600))
    shown.run_finished(record=RECORD)
    assert "this run will take about 2:46:34 more; --protocol quick is shorter" in page.getvalue()


def test_standard_error_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    """Standard output holds results alone."""
    ProgressDisplay().run_started(record=RECORD, cost=cost(10))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "naive on split_cifar10 (paper)" in captured.err
