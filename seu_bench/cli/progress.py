"""Progress of a run and of a sweep: bars on a terminal, lines elsewhere.

Text of records, plugins and processes is shown literally, on one line and without control characters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from seu_bench.errors import Interruption
from seu_bench.hookspecs import hookimpl
from seu_bench.plugin.executors import Noticed, Started
from seu_bench.utils.progress import watching_console
from seu_bench.utils.text import format_seconds, printable

if TYPE_CHECKING:
    from rich.console import Console

    from seu_bench.results.record import Record
    from seu_bench.sweeps.driver import JobResult, SweepReport
    from seu_bench.sweeps.plan import SweepPlan
    from seu_bench.training.interfaces import Cost
    from seu_bench.training.stage import StageProgress


class _Display:
    """Bars with a note each, removed when they are closed; none are drawn where there is no terminal."""

    def __init__(self, console: Console | None) -> None:
        console = watching_console() if console is None else console
        # Names hold options, whose brackets would be markup.
        name, note = (TextColumn(f"{{task.{field}}}", markup=False) for field in ("description", "fields[note]"))
        columns = (name, BarColumn(40), TextColumn("{task.percentage:>3.0f}%"), TimeElapsedColumn(), note)
        self.bars = Progress(
            *columns, console=console, transient=True, disable=not console.is_terminal, speed_estimate_period=3600
        )
        self.console = console

    def say(self, text: str) -> None:
        """Print a line above the bars."""
        self.console.print(Text(printable(text)), soft_wrap=True)


class ProgressDisplay(_Display):
    """Plugin that draws a run's progress.

    Args:
        console: standard error by default, so that standard output holds results alone.
        foretell: returns what is to be said of the time that a run of this cost takes.
    """

    def __init__(self, console: Console | None = None, *, foretell: Callable[[Cost], str] = lambda _: "") -> None:
        super().__init__(console)
        self._foretell = foretell
        self._run = self.bars.add_task("run", note="")
        self._stage = self.bars.add_task("", total=1, note="")
        self._tasks = self._passed = 0  # images, in stages that ended

    @hookimpl
    def run_started(self, record: Record, cost: Cost) -> None:
        """Say what is run, and open the bars."""
        self._tasks = len(record.task_names)
        self._passed = sum(stage.image_passes for stage in record.stages)
        what = f"{record.strategy} on {record.benchmark} ({record.protocol}), seed {record.seed}"
        known = 0 if record.parent is None else record.parent.tasks
        own = replace(cost, stages=tuple(stage for stage in cost.stages if stage.task >= known))
        time = "" if any(stage.task >= known for stage in record.stages) else self._foretell(own)
        tasks = f"task{'s' * (self._tasks - known > 1)} {', '.join(record.task_names[known:])} after {known}"
        tasks = tasks if known else f"{self._tasks} tasks"
        self.say(f"{what}: {tasks}, {own.all_passes:,} image passes{time}")
        self.bars.reset(self._run, total=max(1, cost.all_passes), completed=self._passed)
        self.bars.start()

    @hookimpl
    def stage_progress(self, progress: StageProgress) -> None:
        """Update the bars; without a terminal, print a line per finished stage."""
        passed = self._passed + progress.image_passes
        self._passed = passed if progress.done else self._passed
        self.bars.update(self._run, completed=passed)
        where = f"task {progress.task + 1}/{self._tasks} {progress.stage}"
        accuracy = progress.report.accuracy
        note = f"accuracy {accuracy:.3f}" if accuracy is not None else ""
        left = format_seconds(self.bars.tasks[0].time_remaining)
        epoch = f"{where}, epoch {min(progress.epoch + 1, progress.epochs)}/{progress.epochs}"
        self.bars.update(self._run, note=f"ETA {left}")
        self.bars.update(self._stage, description=epoch, completed=progress.epoch, total=progress.epochs, note=note)
        if self.bars.disable and progress.done:
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
        self.say(f"{record.status} after {format_seconds(record.seconds)}")


class SweepDisplay(_Display):
    """Draws a bar for all jobs of a sweep, and prints a line where one starts, has a notice or ends.

    Args:
        plan: of the sweep.
        slots: jobs at once; ``None``: not known.
        console: standard error by default.
    """

    def __init__(self, plan: SweepPlan, slots: int | None, console: Console | None = None) -> None:
        from seu_bench.sweeps.plan import SweepEstimate

        super().__init__(console)
        self._labels = {job.run_id: job.label for job in plan.jobs}
        self._left = {job.run_id: job for job in plan.pending}
        self._done = len(plan.jobs) - len(self._left)
        self._estimate = SweepEstimate(plan, slots)
        self._bar = self.bars.add_task("sweep", total=max(1, len(plan.jobs)), note="")
        self._update()

    def __call__(self, report: SweepReport) -> None:
        """Show a report."""
        match report:
            case Started(run_id=run_id, where=where):
                self.say(f"{self._labels[run_id]}: started" + (f" on {where}" if where else ""))
            case Noticed():
                self.say(f"{self._labels[report.run_id]}: {report.message}")
            case Interruption():
                self.say(f"{report.reason}: running jobs write their checkpoints; once more stops at once")
            case _:
                self._end(report)
        self._update()

    def _end(self, result: JobResult) -> None:
        if result.status == "pending":
            return
        job = self._left.pop(result.job.run_id)
        self._done += 1
        outcome = f"{result.status}: {result.message}"
        if result.status == "finished" and result.record is not None:
            self._estimate.learn(job, result.record.seconds)
            accuracy = result.record.metrics.get("acc")
            outcome = f"finished in {format_seconds(result.record.seconds)}"
            outcome += "" if accuracy is None else f", accuracy {100 * accuracy:.2f} %"
        self.say(f"[{self._done}/{len(self._labels)}] {result.job.label}: {outcome}")

    def _update(self) -> None:
        seconds = self._estimate.of(self._left.values())
        left = f"about {format_seconds(seconds)} left" if seconds is not None else "time not known yet"
        self.bars.update(self._bar, completed=self._done, note=f"{self._done}/{len(self._labels)} jobs, {left}")
