"""Progress of runs and sweeps: bars on a terminal, lines elsewhere, texts of strangers literally."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from rich.console import Console
from support.sweeping import plan, record_of

from seu_bench.cli.progress import ProgressDisplay, SweepDisplay
from seu_bench.errors import Interruption
from seu_bench.plugin.executors import Noticed, Started
from seu_bench.results.record import Record
from seu_bench.sweeps.driver import JobResult
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
#: Markup, a terminal's escape and a tabulator.
EVIL = "it [red]broke[/red] \x1b[2J in\ttwo"
NOW = [1000.0]


def shown(*, terminal: bool) -> tuple[ProgressDisplay, StringIO]:
    """The display of a run of 1,000 images that has begun, on a page of text."""
    page = StringIO()
    console = Console(file=page, force_terminal=terminal, width=200, color_system=None, get_time=lambda: NOW[0])
    display = ProgressDisplay(console, foretell=lambda cost: ", about 9 h")
    display.run_started(record=RECORD, cost=Cost((1, 1), (1, 1), (1, 1), (1, 1), (StageCost("training", 0, 1000, 0),)))
    display.stage_progress(progress=report(50, 1))
    NOW[0] += 8
    return display, page


def report(passes: int, epoch: int, *, done: bool = False, accuracy: float | None = None) -> StageProgress:
    return StageProgress("training", 1, epoch, 4, EpochReport(0.5, accuracy), passes, 2.0, done)


def test_lines_of_a_run() -> None:
    """At the start with the forecast, for each stage and at the end, without control characters."""
    display, page = shown(terminal=False)
    display.stage_progress(progress=report(250, 2))
    display.stage_progress(progress=report(500, 4, done=True, accuracy=0.875))
    display.run_notice(message=EVIL)
    display.run_finished(record=RECORD.model_copy(update={"status": "finished", "seconds": 61.0}))
    assert page.getvalue().splitlines() == [
        "naive on split_cifar10 (paper), seed 7: 2 tasks, 1,000 image passes, about 9 h",
        "task 2/2 training: 4 epochs in 2.0 s, accuracy 0.875, about 9.00 s left",
        "it [red]broke[/red] [2J in two",
        "finished after 1 min 01 s",
    ]


@pytest.mark.parametrize("status", ["finished", "interrupted"])
def test_bars_of_a_run(status: str) -> None:
    """The run with the time left, the stage with its epoch and accuracy; the cursor is given back in any case."""
    display, page = shown(terminal=True)
    display.stage_progress(progress=report(250, 2, accuracy=0.5))
    display.bars.refresh()
    drawn = page.getvalue()
    assert re.search(r"run +\S+ +25% \d:\d\d:\d\d ETA 30.00 s", drawn)
    assert re.search(r"task 2/2 training, epoch 3/4 +\S+( \S+)? +50% \d:\d\d:\d\d accuracy 0.500", drawn)
    display.run_finished(record=RECORD.model_copy(update={"status": status}))
    assert not display.bars.live.is_started
    assert page.getvalue().count("\x1b[?25l") == page.getvalue().count("\x1b[?25h") == 1


@pytest.mark.parametrize("terminal", [True, False])
def test_sweep(terminal: bool) -> None:
    """A line where a job starts, has a notice or ends; on a terminal also a bar over all of them."""
    page = StringIO()
    found = plan(strategy="naive", seeds="0-3", options={"epochs": 2})
    first, second, third, _ = found.jobs
    display = SweepDisplay(found, 2, Console(file=page, force_terminal=terminal, width=160, color_system=None))
    with display.bars:
        display(Started(run_id=first.run_id, where="cuda 1"))
        display(Noticed(run_id=first.run_id, message=EVIL))
        display(JobResult(first, "finished", "", record_of(first, metrics={"acc": 0.5}, seconds=65.0)))
        display(JobResult(second, "lost", EVIL))
        display(Interruption("interrupted by SIGINT", 130))
        display(JobResult(third, "pending", made=False))
        (bar,) = display.bars.tasks
        assert (bar.percentage, bar.fields["note"]) == (50, "2/4 jobs, about 1 min 05 s left")
    label = "split_digits smoke: naive (epochs=2), seed"
    lines = [
        f"{label} 0: started on cuda 1",
        f"{label} 0: it [red]broke[/red] [2J in two",
        f"[1/4] {label} 0: finished in 1 min 05 s, accuracy 50.00 %",
        f"[2/4] {label} 1: lost: it [red]broke[/red] [2J in two",
        "interrupted by SIGINT: running jobs write their checkpoints; once more stops at once",
    ]
    if terminal:
        assert all(line in page.getvalue() for line in lines) and "\x1b[2J" not in page.getvalue()
    else:
        assert page.getvalue().splitlines() == lines
