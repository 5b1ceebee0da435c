"""What a sweep shows: its plan, bars on a terminal or lines elsewhere while it goes on, and what became of each job.

Whatever comes from records, plugins and processes is shown literally, on one line and without control characters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text

from seu_bench.cli.progress import duration
from seu_bench.plugin.executors import Progressed
from seu_bench.results.record_metrics import METRICS
from seu_bench.sweeps.driver import JobResult, SweepResult, SweepWatcher
from seu_bench.sweeps.estimate import SweepEstimate
from seu_bench.sweeps.plan import PlannedJob, SweepPlan
from seu_bench.utils.text import format_seconds, printable

if TYPE_CHECKING:
    from seu_bench.results.record import Record

#: Shares of a bar for a whole sweep are counted in this many parts of a job.
_PARTS = 1000


def plan_lines(plan: SweepPlan, estimate: SweepEstimate, slots: int | None) -> Iterator[Table | Text]:
    """The plan: a row per configuration, how many jobs stand where, and what it will take."""
    left = {job.run_id for job in plan.pending}
    rows: dict[str, list[PlannedJob]] = {}
    for job in plan.jobs:
        rows.setdefault(job.configuration.key, []).append(job)
    table = _table("plan")
    for heading in ("benchmark", "protocol", "configuration"):
        table.add_column(heading, overflow="fold")
    for heading in ("jobs", "done", "interrupted", "failed", "pending", "time"):
        table.add_column(heading, justify="right", no_wrap=True)
    for jobs in rows.values():
        spec = jobs[0].configuration.run.spec
        states = Counter(job.state for job in jobs)
        due = [job for job in jobs if job.run_id in left]
        seconds = [estimate.of_job(job) for job in due]
        known = [value for value in seconds if value is not None]
        table.add_row(
            _literal(spec.benchmark.name),
            _literal(spec.protocol_name),
            _literal(jobs[0].configuration.label),
            *map(str, (len(jobs), states["finished"], states["interrupted"], states["failed"], len(due))),
            duration(sum(known)) if due and len(known) == len(seconds) else "-",
        )
    yield table
    yield Text()
    yield from map(Text, _plan_words(plan, estimate, slots))


def _plan_words(plan: SweepPlan, estimate: SweepEstimate, slots: int | None) -> Iterator[str]:
    states, again = Counter(job.state for job in plan.jobs), plan.spec.retry_failed
    told = [
        f"{states['finished']} done",
        f"{states['interrupted']} interrupted (will go on)" if states["interrupted"] else "",
        f"{states['failed']} failed ({'will be' if again else 'with --retry-failed they are'} run again)"
        if states["failed"]
        else "",
        f"{states['running']} running elsewhere (looked at last)" if states["running"] else "",
        f"{len(plan.pending)} pending",
    ]
    yield f"{_number(len(plan.jobs), 'job')}: " + ", ".join(filter(None, told))
    if plan.pending:
        at_once = f", {_number(min(slots, len(plan.pending)), 'job')} at once" if slots else ""
        seconds = estimate.of_all(plan.pending, {}, slots)
        known = f"about {duration(seconds)}" if seconds is not None else "not known yet"
        yield f"estimated time: {known}{at_once}"
    yield from (f"note: {printable(note)}" for note in plan.notes)


def result_table(result: SweepResult) -> Table | None:
    """A row for each job that was made, or failed, or was not begun; ``None`` where all were finished before."""
    shown = [job for job in result.jobs if job.made or job.status != "finished"]
    if not shown:
        return None
    table = _table("jobs")
    table.add_column("job", overflow="fold")
    table.add_column("", no_wrap=True)
    for heading in ("acc", "mixed score", "took"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for job in shown:
        record = job.record if job.status == "finished" else None
        table.add_row(
            _literal(job.job.label),
            job.status,
            _metric(record, "acc"),
            _metric(record, "mixed_score"),
            format_seconds(record.seconds) if record is not None and record.seconds is not None else "-",
            _literal(job.message.partition("\n")[0]),  # the rest was told when it happened
        )
    return table


def result_words(result: SweepResult) -> str:
    """How many jobs became what."""
    statuses = Counter(job.status for job in result.jobs)
    words = {"held": "held by another process", "pending": "not started"}
    return ", ".join(f"{number} {words.get(status, status)}" for status, number in statuses.items())


class SweepDisplay(SweepWatcher):
    """Draws a sweep's progress: a bar for all, and one for each job that runs; lines where there is no terminal.

    Args:
        console: where; standard error by default, so that standard output holds results alone.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = Console(stderr=True) if console is None else console
        self._jobs = self._over = 0
        self._seconds: float | None = None
        self._bars: Progress | None = None
        self._all: TaskID | None = None
        self._of_job: dict[str, TaskID] = {}
        self._shares: dict[str, float] = {}

    def begin(self, plan: SweepPlan) -> None:
        """Open the bars."""
        self._jobs = len(plan.jobs)
        self._over = self._jobs - len(plan.pending)
        if self.console.is_terminal:
            self._bars = Progress(*_columns(), console=self.console, transient=True)
            self._all = self._bars.add_task("sweep", total=_PARTS * max(1, self._jobs), note="")
            self._bars.start()
            self._move()

    def started(self, job: PlannedJob, where: str) -> None:
        """A bar for the job, or a line."""
        if self._bars is not None:
            self._of_job[job.run_id] = self._bars.add_task(printable(job.label), total=None, note=printable(where))
        else:
            self._say(f"{job.label}: started" + (f" on {where}" if where else ""))

    def progressed(self, job: PlannedJob, progress: Progressed) -> None:
        """Move the bars; lines are for what begins and ends."""
        if self._bars is None or job.run_id not in self._of_job:
            return
        stage = f"task {progress.task + 1}/{progress.tasks} {progress.stage}"
        epoch = f" {min(progress.epoch + 1, progress.epochs)}/{progress.epochs}" if progress.epochs else ""
        note = printable(f"{stage}{epoch}, {duration(progress.remaining)} left")
        planned = max(1, progress.planned)
        self._bars.update(self._of_job[job.run_id], completed=progress.passed, total=planned, note=note)
        self._shares[job.run_id] = min(1.0, progress.passed / planned)
        self._move()

    def noticed(self, job: PlannedJob, message: str) -> None:
        """A line of its own."""
        self._say(f"{job.label}: {message}")

    def ended(self, result: JobResult) -> None:
        """A line; the job's bar goes."""
        job = result.job
        self._shares.pop(job.run_id, None)
        if self._bars is not None and job.run_id in self._of_job:
            self._bars.remove_task(self._of_job.pop(job.run_id))
        if result.status == "pending":
            return
        self._over += result.status == "finished" or job.state != "finished"
        self._move()
        record = result.record
        if result.status == "finished" and record is not None:
            took = f" in {duration(record.seconds)}" if record.seconds is not None else ""
            told = f"finished{took}, accuracy {_metric(record, 'acc')}"
        else:
            told = f"{result.status}: {result.message}"
        self._say(f"[{self._over}/{self._jobs}] {job.label}: {told}")

    def stopping(self, reason: str) -> None:
        """A line: it may take some seconds."""
        self._say(f"{reason}: jobs that run write their checkpoints; once more stops at once")

    def estimated(self, seconds: float | None) -> None:
        """Beside the bar of all."""
        self._seconds = seconds
        self._move()

    def end(self) -> None:
        """Close the bars."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None

    def _move(self) -> None:
        if self._bars is None or self._all is None:
            return
        known = f", about {duration(self._seconds)} left" if self._seconds is not None else ", time not known yet"
        note = f"{self._over}/{self._jobs} jobs{known}"
        self._bars.update(self._all, completed=_PARTS * (self._over + sum(self._shares.values())), note=note)

    def _say(self, text: str) -> None:
        self.console.print(_literal(text), soft_wrap=True)


def _columns() -> list[ProgressColumn]:
    # Labels hold options, whose brackets would be markup.
    name = TextColumn("{task.description}", markup=False, table_column=Column(ratio=2, no_wrap=True))
    note = TextColumn("{task.fields[note]}", markup=False, table_column=Column(ratio=2, no_wrap=True))
    return [name, BarColumn(20), TextColumn("{task.percentage:>3.0f}%"), TimeElapsedColumn(), note]


def _metric(record: Record | None, name: str) -> str:
    return "-" if record is None else METRICS[name].format(record.metrics.get(name))


def _number(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _table(title: str) -> Table:
    justify: Literal["left"] = "left"
    return Table(title=title, title_justify=justify, box=box.SIMPLE_HEAD, padding=(0, 1), show_edge=False)


def _literal(text: str) -> Text:
    return Text(printable(text))
