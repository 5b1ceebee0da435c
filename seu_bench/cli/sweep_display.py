"""Display of a sweep: its plan, progress (bars on a terminal, lines elsewhere), and the results of its jobs.

Text of records, plugins and processes is shown literally, on one line and without control characters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import TaskID
from rich.table import Table
from rich.text import Text

from seu_bench.cli.progress import duration, make_bars
from seu_bench.cli.tables import literal, new_table
from seu_bench.errors import Interruption
from seu_bench.plugin.executors import Noticed, Started
from seu_bench.results.record_metrics import METRICS
from seu_bench.sweeps.driver import JobResult, Progressed, Remaining, SweepEstimate, SweepReport, SweepResult
from seu_bench.sweeps.plan import PlannedJob, SweepPlan
from seu_bench.utils.text import format_seconds, printable

if TYPE_CHECKING:
    from seu_bench.results.record import Record


def plan_lines(plan: SweepPlan, estimate: SweepEstimate, slots: int | None) -> Iterator[Table | Text]:
    """Yield the plan: a row per configuration, jobs by state, and the estimated time."""
    left = {job.run_id for job in plan.pending}
    of_configuration: dict[str, list[PlannedJob]] = {}
    for job in plan.jobs:
        of_configuration.setdefault(job.configuration.key, []).append(job)
    rows = []
    for jobs in of_configuration.values():
        spec, states = jobs[0].configuration.run.spec, Counter(job.state for job in jobs)
        seconds = [estimate.of_job(job) for job in jobs if job.run_id in left]
        known = [value for value in seconds if value is not None]
        counts = (len(jobs), states["finished"], states["interrupted"], states["failed"], len(seconds))
        time = duration(sum(known)) if seconds and len(known) == len(seconds) else "-"
        rows.append((spec.benchmark.name, spec.protocol_name, jobs[0].configuration.label, *counts, time))
    numbers = (">jobs", ">finished", ">interrupted", ">failed", ">pending", ">time")
    yield new_table("plan", ("benchmark", "protocol", "configuration", *numbers), rows)
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

    def row(job: JobResult) -> tuple[str, ...]:
        record = job.record if job.status == "finished" else None
        time = format_seconds(record.seconds) if record is not None else "-"
        message = job.message.partition("\n")[0]  # the rest was printed when it happened
        return job.job.label, job.status, _metric(record, "acc"), _metric(record, "mixed_score"), time, message

    rows = [row(job) for job in result.jobs if job.made or job.status != "finished"]
    return new_table("jobs", ("job", "=", ">acc", ">mixed score", ">time", ""), rows) if rows else None


def result_words(result: SweepResult) -> str:
    """Count jobs by status."""
    statuses = Counter(job.status for job in result.jobs)
    words = {"held": "held by another process", "pending": "not started"}
    return ", ".join(f"{number} {words.get(status, status)}" for status, number in statuses.items())


class SweepDisplay:
    """Draws a sweep's progress: a bar for all jobs, and one for each running job; lines where there is no terminal.

    Args:
        plan: of the sweep.
        console: standard error by default.
        each_start: whether to print a line where a job starts on a terminal, too.

    Example:
        ``with display.bars: run_sweep(plan, executor, estimate, display)``
    """

    def __init__(self, plan: SweepPlan, console: Console | None = None, *, each_start: bool = False) -> None:
        self.bars = make_bars(console, 20)
        self._each_start = each_start or self.bars.disable
        self._jobs = {job.run_id: job for job in plan.jobs}
        self._done = len(plan.jobs) - len(plan.pending)
        self._seconds: float | None = None
        self._all = self.bars.add_task("sweep", total=max(1, len(plan.jobs)), note="")
        self._of_job: dict[str, TaskID] = {}
        self._update()

    def __call__(self, report: SweepReport) -> None:
        """Show a report."""
        match report:
            case Started(run_id=run_id, where=where):
                label = self._jobs[run_id].label
                self._of_job[run_id] = self.bars.add_task(printable(label), total=1, note=printable(where))
                if self._each_start:
                    self._say(f"{label}: started" + (f" on {where}" if where else ""))
            case Progressed(run_id=run_id) if run_id in self._of_job:
                at = report.progress
                stage = f"task {at.task + 1}/{at.tasks} {at.stage}"
                epoch = f" {min(at.epoch + 1, at.epochs)}/{at.epochs}" if at.epochs else ""
                note = printable(f"{stage}{epoch}, {duration(at.remaining)} left")
                share = min(1.0, at.passed / max(1, at.planned))
                self.bars.update(self._of_job[run_id], completed=share, note=note)
            case Noticed():
                self._say(f"{self._jobs[report.run_id].label}: {report.message}")
            case JobResult():
                self._ended(report.job, report)
            case Interruption():
                self._say(f"{report.reason}: running jobs write their checkpoints; once more stops at once")
            case Remaining():
                self._seconds = report.seconds
        self._update()

    def _ended(self, job: PlannedJob, result: JobResult) -> None:
        if job.run_id in self._of_job:
            self.bars.remove_task(self._of_job.pop(job.run_id))
        if result.status == "pending":
            return
        self._done += result.status == "finished" or job.state != "finished"
        outcome = f"{result.status}: {result.message}"
        if result.status == "finished" and (record := result.record) is not None:
            took = f" in {duration(record.seconds)}" if record.seconds is not None else ""
            outcome = f"finished{took}, accuracy {_metric(record, 'acc')}"
        self._say(f"[{self._done}/{len(self._jobs)}] {job.label}: {outcome}")

    def _update(self) -> None:
        known = f"about {duration(self._seconds)} left" if self._seconds is not None else "time not known yet"
        running = sum(task.completed for task in self.bars.tasks if task.id in self._of_job.values())
        note = f"{self._done}/{len(self._jobs)} jobs, {known}"
        self.bars.update(self._all, completed=self._done + running, note=note)

    def _say(self, text: str) -> None:
        self.bars.console.print(literal(text), soft_wrap=True)


def _metric(record: Record | None, name: str) -> str:
    return "-" if record is None else METRICS[name].format(record.metrics.get(name))


def _number(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
