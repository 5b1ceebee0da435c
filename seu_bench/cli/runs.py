"""``seu-bench runs`` and ``show``: runs and their states, also while they are made; the record of one."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Final

import click
from rich.live import Live
from rich.table import Table

from seu_bench.cli.completion import run_ids
from seu_bench.cli.options import format_option, known_registry, print_as, request_command
from seu_bench.cli.tables import accuracy_summary, new_table, record_summary, wide_console
from seu_bench.engine.forecast import read_progress
from seu_bench.engine.run_folder import RunState, list_runs
from seu_bench.errors import OptionError
from seu_bench.plugin.registry import use_plugins
from seu_bench.results.record import runs_folder
from seu_bench.results.record_files import find_record, record_document
from seu_bench.results.record_metrics import measured_rows
from seu_bench.utils.progress import hide_progress
from seu_bench.utils.text import format_seconds, printable

#: States in the order in which runs are followed.
_STATES: Final = ("running", "failed", "interrupted", "unreadable", "finished")
#: Seconds between two looks, of which looking may take a fifth.
_INTERVAL: Final = 2.0
_SHARE: Final = 0.2


@request_command("results")
@click.option("--state", type=click.Choice(_STATES), default=None, help="Only runs in this state.")
@click.option(
    "--rows", type=click.IntRange(min=0), default=200, show_default=True, help="Maximum runs in the terminal; 0: all."
)
@click.option("--follow", is_flag=True, help="Show the runs while they are made, until Ctrl-C.")
@format_option
def runs(results: Path, state: str | None, rows: int, follow: bool, form: str) -> None:
    """List runs and their states.

    Rerun the command of an interrupted or failed run to resume it from its newest checkpoint. With --follow running
    runs come first, with accuracy so far and time left; where the output is no terminal, each change is a line.
    """
    if follow and form == "json":
        raise OptionError("--follow has no --format json", remedy="leave out one of the two")
    if follow:
        _follow(results, state, rows)
        return
    found = [run for run in list_runs(results) if state in (None, run.state)]
    documents = [
        run.document()
        | {"scenario": run.record.scenario if run.record else None}
        | {"parent": run.record.parent.run_id if run.record and run.record.parent else None}
        for run in found
    ]
    nothing = f"no runs in {results}" + (f" are {state}" if state else "")
    print_as(
        form, documents, [_table(found, [_cells(run, results) for run in found[: rows or None]]) if found else nothing]
    )


def _table(found: Sequence[RunState], cells: Sequence[Sequence[str]], note: str = "") -> Table:
    states = ", ".join(f"{number:,} {name}" for name, number in Counter(run.state for run in found).most_common())
    title = f"{len(found):,} run{'s' * (len(found) != 1)}" + f" ({states})" * bool(found)
    title += f", the first {len(cells)}; --state chooses, --rows 0 shows all" if len(cells) < len(found) else ""
    return new_table(f"{title}{note}", ("run", "=state", ">tasks", ">accuracy", ">time", ""), cells)


def _follow(results: Path, state: str | None, rows: int) -> None:
    """Draw the runs until Ctrl-C; where there is no terminal, print a line for each change."""
    console, told = wide_console(), dict[str, list[str]]()
    with contextlib.suppress(KeyboardInterrupt), hide_progress(), Live(console=console, auto_refresh=False) as live:
        while True:
            began = time.monotonic()
            found = [run for run in list_runs(results) if state in (None, run.state)]
            found.sort(key=lambda run: _STATES.index(run.state))
            cells = [_cells(run, results) for run in found[: rows or None]]
            if console.is_terminal:
                live.update(_table(found, cells, "; Ctrl-C ends"), refresh=True)
            for name, *rest in cells if not console.is_terminal else ():
                news = rest[:3] if rest[0] == "running" else rest
                if told.get(name) != news:
                    told[name] = news
                    click.echo(f"{name}: {', '.join(filter(None, news))}")
            time.sleep(max(_INTERVAL, (time.monotonic() - began) / _SHARE))


def _cells(run: RunState, results: Path) -> list[str]:
    tasks = accuracy = took = "-"
    if run.record is not None:
        tasks, took = f"{run.evaluated}/{len(run.record.task_names)}", format_seconds(run.record.seconds)
        learned = measured_rows(run.record)  # the mean over the tasks learned so far, after the last of them
        row = run.record.accuracy_matrix[learned[-1]][: learned[-1] + 1] if learned else ()
        known = [value for value in row if value is not None]
        accuracy = f"{100 * fmean(known):.2f} %" if known else "-"
    parent = f"continues {run.record.parent.run_id}" if run.record is not None and run.record.parent else None
    where = [str(it) for it in (run.position, run.holder, (run.detail or "").partition("\n")[0], parent) if it]
    if run.state == "running" and (progress := read_progress(runs_folder(results) / run.run_id)) is not None:
        took = f"{format_seconds(progress.remaining)} left"
        where = [f"task {progress.task + 1}, {progress.stage}, epoch {min(progress.epoch + 1, progress.epochs)}"]
    return [printable(run.run_id), run.state, tasks, accuracy, took, printable(", ".join(where))]


@request_command("results", "plugin")
@click.argument("run_name", metavar="RUN", shell_complete=run_ids)
@click.option("--plot", is_flag=True, help="Show the accuracy matrix alone.")
@format_option
def show(run_name: str, plot: bool, results: Path, plugin: tuple[Path, ...], form: str) -> None:
    """Show the record of a run.

    RUN is a run id, a unique prefix of one, or the run's folder. With --format json the record is printed as its file
    has it.
    """
    if form == "json":
        if plot:
            raise OptionError("--plot has no --format json", remedy="leave out one of the two")
        click.echo(record_document(results, run_name), nl=False)
        return
    use_plugins(plugin)
    record = find_record(results, run_name)
    wide_console().print(accuracy_summary(record) if plot else record_summary(record, known_registry().known_metrics))
