"""Display of a sweep: the plan, bars on a terminal, lines elsewhere, a row for each job; all of it literally."""

from __future__ import annotations

import re
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text
from support.sweeping import plan, record_of

from seu_bench.cli.sweep_display import SweepDisplay, plan_lines, result_table, result_words
from seu_bench.errors import Interruption
from seu_bench.plugin.executors import Noticed, Progressed, Started
from seu_bench.results.record import StageRecord, write_record
from seu_bench.sweeps.driver import JobResult, Remaining, SweepResult
from seu_bench.sweeps.estimate import SweepEstimate, estimate_plan
from seu_bench.sweeps.plan import PlannedJob, SweepPlan

#: Markup, a terminal's escape and a tabulator.
EVIL = "it [red]broke[/red] \x1b[2J in\ttwo"


def printed(*things: object, width: int = 160) -> str:
    page = StringIO()
    console = Console(file=page, width=width)
    for thing in things:
        console.print(thing)
    return page.getvalue()


def progress(job: PlannedJob, passed: int, remaining: float | None) -> Progressed:
    return Progressed(
        run_id=job.run_id,
        task=1,
        tasks=5,
        stage="training",
        epoch=2,
        epochs=8,
        passed=passed,
        planned=100,
        remaining=remaining,
    )


def shown(*, terminal: bool, width: int = 160) -> tuple[SweepDisplay, StringIO, SweepPlan]:
    page = StringIO()
    console = Console(file=page, force_terminal=terminal, width=width, color_system=None)
    found = plan(strategy="naive", seeds="0-3", options={"epochs": 2})
    return SweepDisplay(found, console), page, found


def test_plan(tmp_path: Path) -> None:
    """A row per configuration: how many, where they stand, what they will take; then the same in words."""
    asked = {"results": tmp_path, "strategy": "naive,ewc", "seeds": "0-3"}
    stages = (StageRecord(name="training", task=0, epochs=1, seconds=1.0, image_passes=100),)
    for job in plan(**asked).jobs:
        if job.configuration.label == "naive" and job.seed < 3:
            status = ("finished", "failed", "interrupted")[job.seed]
            made = record_of(job, status=status, stages=stages if status == "finished" else (), seconds=30.0)
            write_record(tmp_path, made)
    found = plan(**asked)
    lines = printed(*plan_lines(found, estimate_plan(found), 3))
    assert re.search(r"^ split_digits +smoke +naive +4 +1 +1 +1 +2 +1:00 *$", lines, re.MULTILINE)
    assert re.search(r"^ split_digits +smoke +ewc +4 +0 +0 +0 +4 +- *$", lines, re.MULTILINE)
    words = "8 jobs: 1 finished, 1 interrupted (will be resumed), 1 failed (with --retry-failed they are run again), "
    assert f"{words}6 pending\nestimated time: not known yet, 3 jobs at once\n" in lines
    known = plan(results=tmp_path, strategy="naive", seeds="0-3", retry_failed=True)
    lines = printed(*plan_lines(known, estimate_plan(known), 2))
    assert "1 failed (will be run again), 3 pending\nestimated time: about 0:45, 2 jobs at once\n" in lines


@pytest.mark.parametrize("width", [80, 200])
def test_narrow(width: int) -> None:
    """No line is longer than the terminal, and no number is cut."""
    found = plan(strategy="naive", options={"momentum": 0.123456789, "batch_size": 77}, benchmark="split_digits")
    lines = printed(*plan_lines(found, SweepEstimate(), 1), width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert "0.123456789" in "".join(line.replace(" ", "") for line in lines) or width == 80


def test_lines() -> None:
    """Without a terminal: a line when a job begins, when it has something to say, when it ends; how many are over."""
    display, page, found = shown(terminal=False)
    first, second, third, _ = found.jobs
    with display.bars:
        display(Started(run_id=first.run_id, where="cuda 1"))
        display(Started(run_id=second.run_id))
        display(progress(first, 50, 60.0))
        display(Noticed(run_id=first.run_id, message=EVIL))
        display(JobResult(first, "finished", "", record_of(first, metrics={"acc": 0.5}, seconds=65.0)))
        display(JobResult(second, "lost", EVIL))
        display(Interruption("interrupted by SIGINT", 130))
        display(JobResult(third, "pending", made=False))
    label = "split_digits smoke: naive (epochs=2), seed"
    assert page.getvalue().splitlines() == [
        f"{label} 0: started on cuda 1",
        f"{label} 1: started",
        f"{label} 0: it [red]broke[/red] [2J in two",
        f"[1/4] {label} 0: finished in 1:05, accuracy 50.00 %",
        f"[2/4] {label} 1: lost: it [red]broke[/red] [2J in two",
        "interrupted by SIGINT: running jobs write their checkpoints; once more stops at once",
    ]


def test_bars() -> None:
    """On a terminal: one bar for all, with the time left, and one for each job that runs."""
    display, page, found = shown(terminal=True)
    first, second, *_ = found.jobs
    bars = display.bars
    bars.live.auto_refresh = False
    with bars:
        display(Started(run_id=first.run_id, where="cuda 1"))
        display(Started(run_id=second.run_id))
        display(progress(first, 50, 60.0))
        display(Remaining(125.0))
        tasks = {task.description: task for task in bars.tasks}
        assert list(tasks) == ["sweep", *[Text(job.label).plain for job in (first, second)]]
        assert tasks["sweep"].percentage == pytest.approx(12.5)
        assert tasks["sweep"].fields["note"] == "0/4 jobs, about 2:05 left"
        assert (tasks[first.label].completed, tasks[first.label].total) == (0.5, 1)
        assert tasks[first.label].fields["note"] == "task 2/5 training 3/8, 1:00 left"
        display(JobResult(first, "finished", "", record_of(first, metrics={"acc": None})))
        display(Remaining(None))
        assert [task.description for task in bars.tasks] == ["sweep", second.label]
        assert bars.tasks[0].percentage == pytest.approx(25)
        assert bars.tasks[0].fields["note"] == "1/4 jobs, time not known yet"
        bars.refresh()
    assert "[1/4] split_digits smoke: naive (epochs=2), seed 0: finished, accuracy -" in page.getvalue()


def test_bars_show_labels_literally() -> None:
    """An option's brackets are no markup."""
    _, page, found = shown(terminal=True)
    configuration = found.jobs[0].configuration
    request = configuration.request.model_copy(update={"strategy": "x", "options": {"sizes": "[red]"}})
    odd = replace(found.jobs[0], configuration=replace(configuration, request=request))
    console = Console(file=page, force_terminal=True, width=160, color_system=None)
    display = SweepDisplay(replace(found, jobs=(odd,)), console)
    with display.bars:
        display(Started(run_id=odd.run_id))
        display.bars.refresh()
    assert "x (sizes=[red]), seed 0" in page.getvalue()


def test_result() -> None:
    """Jobs made, failed or not begun are rows; jobs finished before are only counted."""
    first, second, third, fourth = plan(strategy="naive", seeds="0-3").jobs
    result = SweepResult(
        (
            JobResult(first, "finished", "", record_of(first), made=False),
            JobResult(second, "finished", "", record_of(second, metrics={"acc": 0.5}, seconds=65.0)),
            JobResult(
                third,
                "failed",
                EVIL + "\nhint: nothing",
                record_of(third, status="failed", metrics={"acc": 0.9}),
                made=False,
            ),
            JobResult(fourth, "pending", made=False),
        )
    )
    lines = printed(result_table(result))
    assert "seed 0" not in lines
    assert re.search(r"^ split_digits smoke: naive, seed 1 +finished +50.00 % +- +1 min 05 s *$", lines, re.MULTILINE)
    assert re.search(r"seed 2 +failed +- +- +- +it \[red\]broke\[/red\] \[2J in two *$", lines, re.MULTILINE)
    assert re.search(r"seed 3 +pending +- +- +- *$", lines, re.MULTILINE)
    assert (result_words(result), result.exit_code) == ("2 finished, 1 failed, 1 not started", 1)
    assert result_table(SweepResult(result.jobs[:1])) is None
    assert SweepResult(result.jobs[:2]).exit_code == 0
