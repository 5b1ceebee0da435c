"""What a sweep shows: its plan, bars on a terminal or lines elsewhere while it goes on, and what became of each cell.

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
from seu_bench.metrics import format_metric
from seu_bench.plugin.executors import Progressed
from seu_bench.sweeps.driver import CellResult, SweepResult, SweepWatcher
from seu_bench.sweeps.estimate import SweepEstimate
from seu_bench.sweeps.plan import PlannedCell, SweepPlan
from seu_bench.utils.text import format_seconds, printable

if TYPE_CHECKING:
    from seu_bench.results.record import Record

#: Shares of a bar for a whole sweep are counted in this many parts of a cell.
_PARTS = 1000


def plan_lines(plan: SweepPlan, estimate: SweepEstimate, slots: int | None) -> Iterator[Table | Text]:
    """The plan: a row per configuration, how many cells stand where, and what it will take."""
    left = {cell.run_id for cell in plan.left}
    rows: dict[str, list[PlannedCell]] = {}
    for cell in plan.cells:
        rows.setdefault(cell.configuration.key, []).append(cell)
    table = _table("plan")
    for heading in ("benchmark", "protocol", "configuration"):
        table.add_column(heading, overflow="fold")
    for heading in ("cells", "done", "interrupted", "failed", "left", "time"):
        table.add_column(heading, justify="right", no_wrap=True)
    for cells in rows.values():
        spec = cells[0].configuration.run.spec
        states = Counter(cell.state for cell in cells)
        due = [cell for cell in cells if cell.run_id in left]
        seconds = [estimate.of_cell(cell) for cell in due]
        known = [value for value in seconds if value is not None]
        table.add_row(
            _literal(spec.benchmark.name),
            _literal(spec.protocol_name),
            _literal(cells[0].configuration.label),
            *map(str, (len(cells), states["finished"], states["interrupted"], states["failed"], len(due))),
            duration(sum(known)) if due and len(known) == len(seconds) else "-",
        )
    yield table
    yield Text()
    yield from map(Text, _plan_words(plan, estimate, slots))


def _plan_words(plan: SweepPlan, estimate: SweepEstimate, slots: int | None) -> Iterator[str]:
    states, again = Counter(cell.state for cell in plan.cells), plan.spec.retry_failed
    told = [
        f"{states['finished']} done",
        f"{states['interrupted']} interrupted (will go on)" if states["interrupted"] else "",
        f"{states['failed']} failed ({'will be' if again else 'with --retry-failed they are'} run again)"
        if states["failed"]
        else "",
        f"{states['running']} running elsewhere (looked at last)" if states["running"] else "",
        f"{len(plan.left)} left",
    ]
    yield f"{_number(len(plan.cells), 'cell')}: " + ", ".join(filter(None, told))
    if plan.left:
        at_once = f", {_number(min(slots, len(plan.left)), 'cell')} at once" if slots else ""
        seconds = estimate.of_all(plan.left, {}, slots)
        known = f"about {duration(seconds)}" if seconds is not None else "not known yet"
        yield f"estimated time: {known}{at_once}"
    yield from (f"note: {printable(note)}" for note in plan.notes)


def result_table(result: SweepResult) -> Table | None:
    """A row for each cell that was made, or failed, or was not begun; ``None`` where all were finished before."""
    shown = [cell for cell in result.cells if cell.made or cell.fate != "finished"]
    if not shown:
        return None
    table = _table("cells")
    table.add_column("cell", overflow="fold")
    table.add_column("", no_wrap=True)
    for heading in ("acc", "mixed score", "took"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for cell in shown:
        record = cell.record if cell.fate == "finished" else None
        table.add_row(
            _literal(cell.cell.label),
            cell.fate,
            _metric(record, "acc"),
            _metric(record, "mixed_score"),
            format_seconds(record.seconds) if record is not None and record.seconds is not None else "-",
            _literal(cell.message.partition("\n")[0]),  # the rest was told when it happened
        )
    return table


def result_words(result: SweepResult) -> str:
    """How many cells became what."""
    fates = Counter(cell.fate for cell in result.cells)
    words = {"held": "held by another process", "left": "not begun"}
    return ", ".join(f"{number} {words.get(fate, fate)}" for fate, number in fates.items())


class SweepDisplay(SweepWatcher):
    """Draws a sweep's progress: a bar for all, and one for each cell that runs; lines where there is no terminal.

    Args:
        console: where; standard error by default, so that standard output holds results alone.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = Console(stderr=True) if console is None else console
        self._cells = self._over = 0
        self._seconds: float | None = None
        self._bars: Progress | None = None
        self._all: TaskID | None = None
        self._of_cell: dict[str, TaskID] = {}
        self._shares: dict[str, float] = {}

    def begin(self, plan: SweepPlan) -> None:
        """Open the bars."""
        self._cells = len(plan.cells)
        self._over = self._cells - len(plan.left)
        if self.console.is_terminal:
            self._bars = Progress(*_columns(), console=self.console, transient=True)
            self._all = self._bars.add_task("sweep", total=_PARTS * max(1, self._cells), note="")
            self._bars.start()
            self._move()

    def started(self, cell: PlannedCell, where: str) -> None:
        """A bar for the cell, or a line."""
        if self._bars is not None:
            self._of_cell[cell.run_id] = self._bars.add_task(printable(cell.label), total=None, note=printable(where))
        else:
            self._say(f"{cell.label}: started" + (f" on {where}" if where else ""))

    def progressed(self, cell: PlannedCell, progress: Progressed) -> None:
        """Move the bars; lines are for what begins and ends."""
        if self._bars is None or cell.run_id not in self._of_cell:
            return
        stage = f"task {progress.task + 1}/{progress.tasks} {progress.stage}"
        epoch = f" {min(progress.epoch + 1, progress.epochs)}/{progress.epochs}" if progress.epochs else ""
        note = printable(f"{stage}{epoch}, {duration(progress.left)} left")
        planned = max(1, progress.planned)
        self._bars.update(self._of_cell[cell.run_id], completed=progress.passed, total=planned, note=note)
        self._shares[cell.run_id] = min(1.0, progress.passed / planned)
        self._move()

    def noticed(self, cell: PlannedCell, message: str) -> None:
        """A line of its own."""
        self._say(f"{cell.label}: {message}")

    def ended(self, result: CellResult) -> None:
        """A line; the cell's bar goes."""
        cell = result.cell
        self._shares.pop(cell.run_id, None)
        if self._bars is not None and cell.run_id in self._of_cell:
            self._bars.remove_task(self._of_cell.pop(cell.run_id))
        if result.fate == "left":
            return
        self._over += result.fate == "finished" or cell.state != "finished"
        self._move()
        record = result.record
        if result.fate == "finished" and record is not None:
            took = f" in {duration(record.seconds)}" if record.seconds is not None else ""
            told = f"finished{took}, accuracy {_metric(record, 'acc')}"
        else:
            told = f"{result.fate}: {result.message}"
        self._say(f"[{self._over}/{self._cells}] {cell.label}: {told}")

    def stopping(self, reason: str) -> None:
        """A line: it may take some seconds."""
        self._say(f"{reason}: cells that run write their checkpoints; once more stops at once")

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
        note = f"{self._over}/{self._cells} cells{known}"
        self._bars.update(self._all, completed=_PARTS * (self._over + sum(self._shares.values())), note=note)

    def _say(self, text: str) -> None:
        self.console.print(_literal(text), soft_wrap=True)


def _columns() -> list[ProgressColumn]:
    # Labels hold options, whose brackets would be markup.
    name = TextColumn("{task.description}", markup=False, table_column=Column(ratio=2, no_wrap=True))
    note = TextColumn("{task.fields[note]}", markup=False, table_column=Column(ratio=2, no_wrap=True))
    return [name, BarColumn(20), TextColumn("{task.percentage:>3.0f}%"), TimeElapsedColumn(), note]


def _metric(record: Record | None, name: str) -> str:
    return "-" if record is None else format_metric(name, record.metrics.get(name))


def _number(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _table(title: str) -> Table:
    justify: Literal["left"] = "left"
    return Table(title=title, title_justify=justify, box=box.SIMPLE_HEAD, padding=(0, 1), show_edge=False)


def _literal(text: str) -> Text:
    return Text(printable(text))
