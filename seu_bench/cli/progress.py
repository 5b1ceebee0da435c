"""Progress of a run: bars on a terminal, plain lines elsewhere, a notice if it will take long."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from seu_bench.engine.forecast import Forecast
from seu_bench.hookspecs import hookimpl
from seu_bench.utils.console import watching_console
from seu_bench.utils.text import printable

if TYPE_CHECKING:
    from rich.console import Console

    from seu_bench.results.record import Record
    from seu_bench.training.interfaces import Cost
    from seu_bench.training.stage import StageProgress

#: Seconds: longer runs give a notice, after so many seconds of measuring.
LONG_RUN = 3600.0
MEASURE_FOR = 5.0


def duration(seconds: float | None) -> str:
    """``1:02:03``, ``4:05`` or ``-:--``."""
    if seconds is None:
        return "-:--"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def make_bars(console: Console | None = None, width: int | None = 40) -> Progress:
    """Return bars with a note each, removed when they are closed; none are drawn where there is no terminal.

    The console is standard error by default, so that standard output holds results alone.
    """
    console = watching_console() if console is None else console
    # Names hold options, whose brackets would be markup.
    name, note = (TextColumn(f"{{task.{field}}}", markup=False) for field in ("description", "fields[note]"))
    columns = (name, BarColumn(width), TextColumn("{task.percentage:>3.0f}%"), TimeElapsedColumn(), note)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _line(text: str) -> Text:
    """Text that may hold names of any origin: neither markup nor control characters mean anything in it."""
    return Text(printable(text))


class ProgressDisplay:
    """Plugin that draws a run's progress.

    Args:
        console: standard error by default, so that standard output holds results alone.
        shorter: name of a shorter protocol to recommend if the run will be long.
        each_stage: whether to print a line per finished stage on a terminal, too.
        begun: called when training is about to begin.
        foretell: returns what is to be said of the time that a run of this cost takes, where that is worth measuring.
    """

    def __init__(
        self,
        console: Console | None = None,
        shorter: str | None = None,
        *,
        each_stage: bool = False,
        begun: Callable[[], None] = lambda: None,
        foretell: Callable[[Cost], str] = lambda _: "",
    ) -> None:
        self._foretell = foretell
        self.bars = make_bars(console)
        self.console = self.bars.console
        self.shorter = shorter
        self.forecast = Forecast(0)
        self._each_stage = each_stage or self.bars.disable
        self._begun = begun
        self._run = self.bars.add_task("run", note="")
        self._stage = self.bars.add_task("", total=1, note="")
        self._tasks = 0
        self._warned = False

    @hookimpl
    def run_started(self, record: Record, cost: Cost) -> None:
        """Open the bars."""
        self._begun()
        self._tasks = len(record.task_names)
        self.forecast = Forecast(cost.all_passes, before=sum(stage.image_passes for stage in record.stages))
        what = f"{record.strategy} on {record.benchmark} ({record.protocol}), seed {record.seed}"
        time = "" if record.stages else self._foretell(cost)
        self._warned = bool(time)
        line = f"{what}: {self._tasks} tasks, {cost.all_passes:,} image passes{time}"
        self.console.print(_line(line), soft_wrap=True)
        self.bars.update(self._run, total=max(1, cost.all_passes))
        self.bars.start()

    @hookimpl
    def stage_progress(self, progress: StageProgress) -> None:
        """Update the bars; without a terminal, or if asked to, print a line per finished stage."""
        self.forecast.see(progress)
        self._warn_if_long()
        where = f"task {progress.task + 1}/{self._tasks} {progress.stage}"
        accuracy = progress.report.accuracy
        note = f"accuracy {accuracy:.3f}" if accuracy is not None else ""
        left = duration(self.forecast.left)
        epoch = f"{where}, epoch {min(progress.epoch + 1, progress.epochs)}/{progress.epochs}"
        self.bars.update(self._run, completed=self.forecast.passed, note=f"ETA {left}")
        self.bars.update(self._stage, description=epoch, completed=progress.epoch, total=progress.epochs, note=note)
        if self._each_stage and progress.done:
            epochs = "1 epoch" if progress.epoch == 1 else f"{progress.epoch} epochs"
            spent = f"{epochs} in {progress.seconds:.1f} s"
            self.console.print(_line(f"{where}: {spent}, {note or 'accuracy not measured'}, about {left} left"))

    @hookimpl
    def run_notice(self, message: str) -> None:
        """Print the message on a line of its own."""
        self.console.print(_line(message))

    @hookimpl
    def run_finished(self, record: Record) -> None:
        """Close the bars."""
        self.bars.stop()
        self.console.print(_line(f"{record.status} after {duration(record.seconds)}"))

    def _warn_if_long(self) -> None:
        left = self.forecast.left
        if self._warned or left is None or self.forecast.measured < MEASURE_FOR:
            return
        if self.forecast.measured + left > LONG_RUN:
            self._warned = True
            advice = f"; --protocol {self.shorter} is shorter" if self.shorter else ""
            self.console.print(_line(f"this run will take about {duration(left)} more{advice}"))
