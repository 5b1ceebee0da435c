"""``seu-bench runs`` and ``show``: runs and their states; the record of one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from statistics import fmean
from typing import Final

import click

from seu_bench.cli.options import format_option, known_metrics, print_as, request_command
from seu_bench.cli.tables import accuracy_summary, new_table, record_summary, wide_console
from seu_bench.engine.run_folder import RunState, list_runs
from seu_bench.errors import OptionError
from seu_bench.plugin.registry import use_plugins
from seu_bench.results.record_files import find_record, record_document
from seu_bench.results.record_metrics import measured_rows
from seu_bench.utils.text import format_seconds, printable

#: States of runs.
_STATES: Final = ("running", "failed", "interrupted", "unreadable", "finished")


@request_command("results")
@click.option("--state", type=click.Choice(_STATES), default=None, help="Only runs in this state.")
@click.option(
    "--rows", type=click.IntRange(min=0), default=200, show_default=True, help="Maximum runs in the terminal; 0: all."
)
@format_option
def runs(results: Path, state: str | None, rows: int, form: str) -> None:
    """List runs and their states.

    Rerun the command of an interrupted or failed run to resume it from its newest checkpoint.
    """
    found = [run for run in list_runs(results) if state in (None, run.state)]
    documents = [run.document() | {"scenario": run.record.scenario if run.record else None} for run in found]
    if form == "json" or not found:
        print_as(form, documents, [f"no runs in {results}" + (f" are {state}" if state else "")])
        return
    cells, states = [_cells(run) for run in found[: rows or None]], Counter(run.state for run in found)
    title = f"{len(found):,} run{'s' * (len(found) != 1)}"
    title += f" ({', '.join(f'{number:,} {name}' for name, number in states.most_common())})"
    title += f", the first {len(cells)}; --state chooses, --rows 0 shows all" if len(cells) < len(found) else ""
    print_as(form, None, [new_table(title, ("run", "=state", ">tasks", ">accuracy", ">time", ""), cells)])


def _cells(run: RunState) -> list[str]:
    tasks = accuracy = took = "-"
    if run.record is not None:
        tasks, took = f"{run.evaluated}/{len(run.record.task_names)}", format_seconds(run.record.seconds)
        learned = measured_rows(run.record)  # the mean over the tasks learned so far, after the last of them
        row = run.record.accuracy_matrix[learned[-1]][: learned[-1] + 1] if learned else ()
        known = [value for value in row if value is not None]
        accuracy = f"{100 * fmean(known):.2f} %" if known else "-"
    where = [str(it) for it in (run.position, run.holder, (run.detail or "").partition("\n")[0]) if it]
    return [printable(run.run_id), run.state, tasks, accuracy, took, printable(", ".join(where))]


@request_command("results", "plugin")
@click.argument("run_name", metavar="RUN")
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
    wide_console().print(accuracy_summary(record) if plot else record_summary(record, known_metrics()))
