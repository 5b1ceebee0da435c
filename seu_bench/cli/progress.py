"""Progress of a run and of a sweep: bars on a terminal, lines elsewhere.

Text of records, plugins and processes is shown literally, on one line and without control characters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from seu_bench.engine.forecast import Forecast
from seu_bench.errors import Interruption
from seu_bench.hookspecs import hookimpl
from seu_bench.plugin.executors import Noticed, Progressed, Started
from seu_bench.utils.console import watching_console
from seu_bench.utils.text import printable

if TYPE_CHECKING:
    from rich.console import Console

    from seu_bench.results.record import Record
    from seu_bench.sweeps.driver import SweepReport
    from seu_bench.sweeps.plan import PlannedJob, SweepPlan
    from seu_bench.training.interfaces import Cost
    from seu_bench.training.stage import StageProgress


def duration(seconds: float | None) -> str:
    """``1:02:03``, ``4:05`` or ``-:--``."""
    if seconds is None:
        return "-:--"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class _Display:
    """Bars with a note each, removed when they are closed; none are drawn where there is no terminal."""

    def __init__(self, console: Console | None, width: int) -> None:
        console = watching_console() if console is None else console
        # Names hold options, whose brackets would be markup.
        name, note = (TextColumn(f"{{task.{field}}}", markup=False) for field in ("description", "fields[note]"))
        columns = (name, BarColumn(width), TextColumn("{task.percentage:>3.0f}%"), TimeElapsedColumn(), note)
        self.bars = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.console = console

    def say(self, text: str) -> None:
        """Print a line above the bars."""
        self.console.print(Text(printable(text)), soft_wrap=True)


class ProgressDisplay(_Display):
    """Plugin that draws a run's progress.

    Args:
        console: standard error by default, so that standard output holds results alone.
        each_stage: whether to print a line per finished stage on a terminal, too.
        begun: called when training is about to begin.
        foretell: returns what is to be said of the time that a run of this cost takes.
    """

    def __init__(
        self,
        console: Console | None = None,
        *,
        each_stage: bool = False,
        begun: Callable[[], None] = lambda: None,
        foretell: Callable[[Cost], str] = lambda _: "",
    ) -> None:
        super().__init__(console, 40)
        self.forecast = Forecast(0)
        self._each_stage = each_stage or self.bars.disable
        self._begun, self._foretell = begun, foretell
        self._run = self.bars.add_task("run", note="")
        self._stage = self.bars.add_task("", total=1, note="")
        self._tasks = 0

    @hookimpl
    def run_started(self, record: Record, cost: Cost) -> None:
        """Say what is run, and open the bars."""
        self._begun()
        self._tasks = len(record.task_names)
        self.forecast = Forecast(cost.all_passes, before=sum(stage.image_passes for stage in record.stages))
        what = f"{record.strategy} on {record.benchmark} ({record.protocol}), seed {record.seed}"
        time = "" if record.stages else self._foretell(cost)
        self.say(f"{what}: {self._tasks} tasks, {cost.all_passes:,} image passes{time}")
        self.bars.update(self._run, total=max(1, cost.all_passes))
        self.bars.start()

    @hookimpl
    def stage_progress(self, progress: StageProgress) -> None:
        """Update the bars; without a terminal, or if asked to, print a line per finished stage."""
        self.forecast.see(progress)
        where = f"task {progress.task + 1}/{self._tasks} {progress.stage}"
        accuracy = progress.report.accuracy
        note = f"accuracy {accuracy:.3f}" if accuracy is not None else ""
        left = duration(self.forecast.left)
        epoch = f"{where}, epoch {min(progress.epoch + 1, progress.epochs)}/{progress.epochs}"
        self.bars.update(self._run, completed=self.forecast.passed, note=f"ETA {left}")
        self.bars.update(self._stage, description=epoch, completed=progress.epoch, total=progress.epochs, note=note)
        if self._each_stage and progress.done:
            spent = f"{progress.epoch} epoch{'s' * (progress.epoch != 1)} in {progress.seconds:.1f} s"
            self.say(f"{where}: {spent}, {note or 'accuracy not measured'}, about {left} left")

    @hookimpl
    def run_notice(self, message: str) -> None:
        """Print the message on a line of its own."""
        self.say(message)

    @hookimpl
    def run_finished(self, record: Record) -> None:
        """Close the bars."""
        self.bars.stop()
        self.say(f"{record.status} after {duration(record.seconds)}")


class SweepDisplay(_Display):
    """Draws a sweep's progress: a bar for all jobs and one for each that runs; lines where there is no terminal.

    Args:
        plan: of the sweep.
        console: standard error by default.
        each_start: whether to print a line where a job starts on a terminal, too.

    Example:
        ``with display.bars: run_sweep(plan, executor, estimate, display)``
    """

    def __init__(self, plan: SweepPlan, console: Console | None = None, *, each_start: bool = False) -> None:
        super().__init__(console, 20)
        self._each_start = each_start or self.bars.disable
        self._jobs = {job.run_id: job for job in plan.jobs}
        self._done = len(plan.jobs) - len(plan.pending)
        self._seconds: float | None = None
        self._all = self.bars.add_task("sweep", total=max(1, len(plan.jobs)), note="")
        self._of_job: dict[str, TaskID] = {}
        self._update()

    def __call__(self, report: SweepReport) -> None:
        """Show a report."""
        from seu_bench.sweeps.driver import JobResult, Remaining

        match report:
            case Started(run_id=run_id, where=where):
                label = self._jobs[run_id].label
                self._of_job[run_id] = self.bars.add_task(printable(label), total=1, note=printable(where))
                if self._each_start:
                    self.say(f"{label}: started" + (f" on {where}" if where else ""))
            case Progressed(run_id=run_id) if run_id in self._of_job:
                stage = f"task {report.task + 1}/{report.tasks} {report.stage}"
                epoch = f" {min(report.epoch + 1, report.epochs)}/{report.epochs}" if report.epochs else ""
                note = printable(f"{stage}{epoch}, {duration(report.remaining)} left")
                share = min(1.0, report.passed / max(1, report.planned))
                self.bars.update(self._of_job[run_id], completed=share, note=note)
            case Noticed():
                self.say(f"{self._jobs[report.run_id].label}: {report.message}")
            case JobResult():
                self._end(report.job, report.status, report.message, report.record)
            case Interruption():
                self.say(f"{report.reason}: running jobs write their checkpoints; once more stops at once")
            case Remaining():
                self._seconds = report.seconds
        self._update()

    def _end(self, job: PlannedJob, status: str, message: str, record: Record | None) -> None:
        if job.run_id in self._of_job:
            self.bars.remove_task(self._of_job.pop(job.run_id))
        if status == "pending":
            return
        self._done += status == "finished" or job.state != "finished"
        outcome = f"{status}: {message}"
        if status == "finished" and record is not None:
            accuracy = record.metrics.get("acc")
            outcome = f"finished in {duration(record.seconds)}"
            outcome += "" if accuracy is None else f", accuracy {100 * accuracy:.2f} %"
        self.say(f"[{self._done}/{len(self._jobs)}] {job.label}: {outcome}")

    def _update(self) -> None:
        left = f"about {duration(self._seconds)} left" if self._seconds is not None else "time not known yet"
        running = sum(task.completed for task in self.bars.tasks if task.id in self._of_job.values())
        note = f"{self._done}/{len(self._jobs)} jobs, {left}"
        self.bars.update(self._all, completed=self._done + running, note=note)
