"""The view for the terminal: as many runs as fit in its height, in its width; all texts literally."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from seu_bench.cli.progress import duration
from seu_bench.cli.tables import literal
from seu_bench.cli.watch.view import STOPPED, PlanView, RunView, View
from seu_bench.results.record_metrics import METRICS

#: Characters of a bar, and of one in a narrow terminal.
_BAR: Final = 24
_NARROW_BAR: Final = 10
#: Terminals narrower than this have shorter bars, and tables of fewer columns.
_NARROW: Final = 72
#: Accuracies of a run that are shown at most, the last ones; the average is of all.
_ACCURACIES: Final = 12
#: Lines that a list keeps below one that needs more.
_KEPT: Final = 6
#: Order and colours of states.
STATES: Final[Mapping[str, str]] = {
    "running": "cyan",
    "failed": "red",
    "interrupted": "yellow",
    "unreadable": "red",
    "pending": "",
    "finished": "green",
}
#: Metrics of finished runs.
FINISHED: Final = ("acc", "forgetting", "params_total")


class Frame:
    """A view as rich draws it.

    Args:
        view: what there is.
        most: runs of each list; 0: all that there are.
        height: lines at most; ``None``: as many as it takes.
        footer: last line, e.g. which keys there are.
    """

    def __init__(self, view: View, most: int, height: int | None = None, footer: str = "") -> None:
        self._view, self._most, self._height, self._footer = view, most, height, footer

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Head, then each list as far as there is room; running runs before those that need somebody."""
        is_narrow = options.max_width < _NARROW
        head = Group(*_head(self._view, is_narrow))
        used = _lines(console, options, head) + (2 if self._footer else 0)
        room = None if self._height is None else max(0, self._height - used)
        yield head
        lists = (
            ("running", self._view.running, self._view.counts["running"]),
            ("failed or interrupted", self._view.stopped, self._view.stopped_count),
            ("finished last", self._view.finished, self._view.counts["finished"]),
        )
        for number, (title, runs, total) in enumerate(lists):
            if not runs:
                continue
            # The lists behind keep some room, where they have runs.
            behind = sum(_KEPT for _, others, _ in lists[number + 1 :] if others)
            share = None if room is None else max(room - behind, room // 2)
            drawn, lines = self._list(console, options, title, runs, total, share)
            if drawn is None:
                continue
            room = None if room is None else room - lines
            yield drawn
        if self._footer:
            yield Text()
            yield literal(self._footer)

    def _list(
        self,
        console: Console,
        options: ConsoleOptions,
        title: str,
        runs: Sequence[RunView],
        total: int,
        room: int | None,
    ) -> tuple[RenderableType | None, int]:
        """A list in so many lines, and how many it takes; ``None``: not one run fits."""
        is_narrow, chosen, used, shown_runs = options.max_width < _NARROW, list[RenderableType](), 2, 0
        if title.startswith("finished"):
            fitting = len(runs) if room is None else max(0, room - 4)
            shown = runs[: min(fitting, self._most or len(runs))]
            if not shown:
                return None, 0
            table = _finished_table(shown, options.max_width)
            heading = Text(_heading(title, len(shown), total), style="bold")
            group = Group(Text(), heading, table)
            return group, _lines(console, options, group)
        for run in runs[: self._most or len(runs)]:
            parts = list(_running(run, is_narrow) if run.state == "running" else _stopped(run))
            lines = _lines(console, options, Group(*parts))
            if room is not None and used + lines > room:
                # One that does not fit is cut to its first line.
                parts = parts[:1]
                lines = _lines(console, options, Group(*parts))
                if used + lines > room:
                    break
            chosen += parts
            used += lines
            shown_runs += 1
        if not chosen:
            return None, 0
        heading = Text(_heading(title, shown_runs, total), style="bold")
        return Group(Text(), heading, *chosen), used


def _heading(title: str, shown: int, total: int) -> str:
    return title if shown == total else f"{title} ({shown:,} of {total:,})"


def _lines(console: Console, options: ConsoleOptions, drawn: RenderableType) -> int:
    return len(console.render_lines(drawn, options.update(height=None), pad=False))


def _head(view: View, is_narrow: bool) -> Iterator[RenderableType]:
    clock = time.strftime("%H:%M:%S", time.localtime(view.time))
    yield literal(f"{view.results}, {clock}")
    yield _total(view)
    for plan in view.plans:
        yield _plan(plan, is_narrow)
    if view.notice:
        yield literal(view.notice)


def count_words(view: View) -> str:
    """Numbers of runs, and of jobs of sweeps and tunings that are pending, on one line."""
    pending = sum(plan.counts["pending"] for plan in view.plans)
    words = _total(view).plain + (f", {pending:,} pending" if pending else "")
    return words + (f" ({view.notice})" if view.notice else "")


def _total(view: View) -> Text:
    runs = sum(view.counts.values())
    words = Text(f"{runs:,} run{'s' * (runs != 1)}")
    return words.append(": ").append(_counts(view.counts)) if runs else words


def _counts(counts: Mapping[str, int]) -> Text:
    parts = [Text(f"{counts[state]:,} {state}", style=style) for state, style in STATES.items() if counts.get(state)]
    return Text(", ").join(parts)


def _plan(plan: PlanView, is_narrow: bool) -> RenderableType:
    ended = plan.counts["finished"]
    left = f", {duration(plan.remaining)} left" if plan.remaining is not None else ""
    left = left or (", nothing is running" if plan.counts["pending"] and not plan.counts["running"] else "")
    note = Text(f"{ended:,} of {plan.total:,} finished")
    others = {state: number for state, number in plan.counts.items() if state != "finished"}
    if any(others.values()):
        note.append(", ").append(_counts(others))
    return _bar(plan.kind, ended / plan.total, note.append(left), is_narrow)


def _bar(name: str, share: float | None, note: Text, is_narrow: bool) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(width=_NARROW_BAR if is_narrow else _BAR)
    table.add_column(no_wrap=True, justify="right", width=4)
    table.add_column(overflow="fold")
    bar = ProgressBar(total=1.0, completed=share or 0.0, width=_NARROW_BAR if is_narrow else _BAR)
    table.add_row(literal(name), bar, "-" if share is None else f"{share:.0%}", note)
    return table


def _running(run: RunView, is_narrow: bool) -> Iterator[RenderableType]:
    yield Text(run.title, style=STATES["running"], overflow="fold")
    yield _bar(" ", run.share, Text(f"{duration(run.remaining)} left"), is_narrow)
    if run.where:
        yield Text(f"  {run.where}", overflow="fold")
    if run.accuracies:
        yield Text(f"  {accuracy_text(run)}", overflow="fold")


def accuracy_text(run: RunView) -> str:
    """Accuracies of the tasks learned, in percent, and their average."""
    values = ["-" if value is None else f"{100 * value:.1f}" for value in run.accuracies]
    shown = " ".join(values[-_ACCURACIES:])
    more = "... " if len(values) > _ACCURACIES else ""
    average = "-" if run.average is None else f"{100 * run.average:.1f}"
    tasks = "1 task" if len(values) == 1 else f"{len(values)} tasks"
    return f"accuracy (%) after {tasks}: {more}{shown}, average {average}"


def _stopped(run: RunView) -> Iterator[RenderableType]:
    line = Text(overflow="fold")
    line.append(run.state, style=STATES[run.state]).append(f"  {run.title}")
    yield line
    if run.reason:
        yield Text(f"  {run.reason}", overflow="fold")
    if run.state in STOPPED and run.where:
        yield Text(f"  {run.where}", overflow="fold")
    if run.resume:
        yield Text("  resume:")
        yield Continued(run.resume)


class Continued:
    """A command in as many lines as it needs, each but the last ended by a backslash, so that it can be copied."""

    def __init__(self, command: str) -> None:
        self._words = [shlex.quote(word) for word in shlex.split(command)]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Break between words; a word that is longer than the line is folded by the terminal."""
        lines = [self._words[0]]
        for word in self._words[1:]:
            if len(lines[-1]) + len(word) + 3 <= options.max_width:
                lines[-1] += f" {word}"
            else:
                lines.append(word)
        for number, line in enumerate(lines, start=1):
            yield Text(line + " \\" * (number < len(lines)), overflow="fold")


def finished_cells(run: RunView, names: Sequence[str] = FINISHED) -> list[str]:
    """Metrics of a finished run in the units of their columns, and how long it took."""
    values = {name: run.record.metrics.get(name) if run.record else None for name in names}
    shown = ["-" if value is None else METRICS[name].format_cell(value) for name, value in values.items()]
    return [*shown, duration(run.record.seconds if run.record else None)]


def _finished_table(runs: Sequence[RunView], width: int) -> Table:
    names = FINISHED[: 1 if width < _NARROW else None]
    cells = [finished_cells(run, names) for run in runs]
    headings = [*[METRICS[name].column or name for name in names], "time"]
    # Numbers are never cut: it is the names of runs that are.
    widths = [max(len(heading), *(len(row[at]) for row in cells)) for at, heading in enumerate(headings)]
    left = max(3, width - sum(widths) - 2 * len(widths))
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    table.add_column("run", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for run, row in zip(runs, cells, strict=True):
        name = literal(run.title)
        name.truncate(left, overflow="ellipsis")
        table.add_row(name, *row)
    return table
