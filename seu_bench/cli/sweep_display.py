"""Display of a sweep: its plan, progress (bars on a terminal, lines elsewhere), and the results of its jobs.

Text of records, plugins and processes is shown literally, on one line and without control characters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text

from seu_bench.cli.progress import duration
from seu_bench.cli.tables import literal, new_table
from seu_bench.plugin.executors import Progressed
from seu_bench.results.record_metrics import METRICS
from seu_bench.sweeps.driver import JobResult, SweepResult, SweepWatcher
from seu_bench.sweeps.estimate import SweepEstimate
from seu_bench.sweeps.plan import PlannedJob, SweepPlan
from seu_bench.utils.text import format_seconds, printable

if TYPE_CHECKING:
    from seu_bench.results.record import Record


def plan_lines(plan: SweepPlan, estimate: SweepEstimate, slots: int | None) -> Iterator[Table | Text]:
    """Yield the plan: a row per configuration, jobs by state, and the estimated time."""
    left = {job.run_id for job in plan.pending}
    rows: dict[str, list[PlannedJob]] = {}
    for job in plan.jobs:
        rows.setdefault(job.configuration.key, []).append(job)
    numbers = (">jobs", ">finished", ">interrupted", ">failed", ">pending", ">time")
    table = new_table("plan", "benchmark", "protocol", "configuration", *numbers)
    for jobs in rows.values():
        spec = jobs[0].configuration.run.spec
        states = Counter(job.state for job in jobs)
        due = [job for job in jobs if job.run_id in left]
        seconds = [estimate.of_job(job) for job in due]
        known = [value for value in seconds if value is not None]
        table.add_row(
            literal(spec.benchmark.name),
            literal(spec.protocol_name),
            literal(jobs[0].configuration.label),
            *map(str, (len(jobs), states["finished"], states["interrupted"], states["failed"], len(due))),
            duration(sum(known)) if due and len(known) == len(seconds) else "-",
        )
    yield table
    yield Text()
    yield from map(Text, _plan_words(plan, estimate, slots))


def _plan_words(plan: SweepPlan, estimate: SweepEstimate, slots: int | None) -> Iterator[str]:
    states, again = Counter(job.state for job in plan.jobs), plan.spec.retry_failed
    parts = [
        f"{states['finished']} finished",
        f"{states['interrupted']} interrupted (will be resumed)" if states["interrupted"] else "",
        f"{states['failed']} failed ({'will be' if again else 'with --retry-failed they are'} run again)"
        if states["failed"]
        else "",
        f"{states['running']} running elsewhere (checked last)" if states["running"] else "",
        f"{len(plan.pending)} pending",
    ]
    yield f"{_number(len(plan.jobs), 'job')}: " + ", ".join(filter(None, parts))
    if plan.pending:
        at_once = f", {_number(min(slots, len(plan.pending)), 'job')} at once" if slots else ""
        seconds = estimate.of_all(plan.pending, {}, slots)
        known = f"about {duration(seconds)}" if seconds is not None else "not known yet"
        yield f"estimated time: {known}{at_once}"
    yield from (f"note: {printable(note)}" for note in plan.notes)


def result_table(result: SweepResult) -> Table | None:
    """Return a row for each job that ran, failed or is pending; ``None`` if all were finished before."""
    shown = [job for job in result.jobs if job.made or job.status != "finished"]
    if not shown:
        return None
    table = new_table("jobs", "job", "", ">acc", ">mixed score", ">time", "")
    table.columns[1].no_wrap = True
    for job in shown:
        record = job.record if job.status == "finished" else None
        table.add_row(
            literal(job.job.label),
            job.status,
            _metric(record, "acc"),
            _metric(record, "mixed_score"),
            format_seconds(record.seconds) if record is not None and record.seconds is not None else "-",
            literal(job.message.partition("\n")[0]),  # the rest was printed when it happened
        )
    return table


def result_words(result: SweepResult) -> str:
    """Count jobs by status."""
    statuses = Counter(job.status for job in result.jobs)
    words = {"held": "held by another process", "pending": "not started"}
    return ", ".join(f"{number} {words.get(status, status)}" for status, number in statuses.items())


class SweepDisplay(SweepWatcher):
    """Draws a sweep's progress: a bar for all jobs, and one for each running job; lines where there is no terminal.

    Args:
        console: standard error by default, so that standard output holds results alone.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = Console(stderr=True) if console is None else console
        # Labels hold options, whose brackets would be markup.
        name = TextColumn("{task.description}", markup=False, table_column=Column(ratio=2, no_wrap=True))
        note = TextColumn("{task.fields[note]}", markup=False, table_column=Column(ratio=2, no_wrap=True))
        columns = (name, BarColumn(20), TextColumn("{task.percentage:>3.0f}%"), TimeElapsedColumn(), note)
        self.bars = Progress(*columns, console=self.console, transient=True, disable=not self.console.is_terminal)
        self._jobs = self._done = 0
        self._seconds: float | None = None
        self._all = self.bars.add_task("sweep", total=1, note="")
        self._of_job: dict[str, TaskID] = {}

    def begin(self, plan: SweepPlan) -> None:
        """Open the bars."""
        self._jobs = len(plan.jobs)
        self._done = self._jobs - len(plan.pending)
        self.bars.start()
        self._update()

    def started(self, job: PlannedJob, where: str) -> None:
        """Add a bar for the job, or print a line."""
        self._of_job[job.run_id] = self.bars.add_task(printable(job.label), total=1, note=printable(where))
        if self.bars.disable:
            self._say(f"{job.label}: started" + (f" on {where}" if where else ""))

    def progressed(self, job: PlannedJob, progress: Progressed) -> None:
        """Update the bars."""
        if job.run_id not in self._of_job:
            return
        stage = f"task {progress.task + 1}/{progress.tasks} {progress.stage}"
        epoch = f" {min(progress.epoch + 1, progress.epochs)}/{progress.epochs}" if progress.epochs else ""
        note = printable(f"{stage}{epoch}, {duration(progress.remaining)} left")
        share = min(1.0, progress.passed / max(1, progress.planned))
        self.bars.update(self._of_job[job.run_id], completed=share, note=note)
        self._update()

    def noticed(self, job: PlannedJob, message: str) -> None:
        """Print a line."""
        self._say(f"{job.label}: {message}")

    def ended(self, result: JobResult) -> None:
        """Print a line and remove the job's bar."""
        job, record = result.job, result.record
        if job.run_id in self._of_job:
            self.bars.remove_task(self._of_job.pop(job.run_id))
        if result.status == "pending":
            return
        self._done += result.status == "finished" or job.state != "finished"
        self._update()
        outcome = f"{result.status}: {result.message}"
        if result.status == "finished" and record is not None:
            took = f" in {duration(record.seconds)}" if record.seconds is not None else ""
            outcome = f"finished{took}, accuracy {_metric(record, 'acc')}"
        self._say(f"[{self._done}/{self._jobs}] {job.label}: {outcome}")

    def stopping(self, reason: str) -> None:
        """Print a line: it may take some seconds."""
        self._say(f"{reason}: running jobs write their checkpoints; once more stops at once")

    def estimated(self, seconds: float | None) -> None:
        """Show the remaining time beside the bar of all jobs."""
        self._seconds = seconds
        self._update()

    def end(self) -> None:
        """Close the bars."""
        self.bars.stop()

    def _update(self) -> None:
        known = f"about {duration(self._seconds)} left" if self._seconds is not None else "time not known yet"
        running = sum(task.completed for task in self.bars.tasks if task.id in self._of_job.values())
        note = f"{self._done}/{self._jobs} jobs, {known}"
        self.bars.update(self._all, completed=self._done + running, total=max(1, self._jobs), note=note)

    def _say(self, text: str) -> None:
        self.console.print(literal(text), soft_wrap=True)


def _metric(record: Record | None, name: str) -> str:
    return "-" if record is None else METRICS[name].format(record.metrics.get(name))


def _number(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
