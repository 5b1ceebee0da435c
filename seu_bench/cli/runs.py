"""``seu-bench runs`` and ``show``: the runs of a results folder and their states, and one record."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from seu_bench.cli.completion import values
from seu_bench.cli.options import format_option, known_metrics, print_as, request_command
from seu_bench.cli.tables import accuracy_summary, new_table, record_summary, wide_console
from seu_bench.engine.run_folder import list_runs
from seu_bench.errors import OptionError
from seu_bench.plugin.registry import use_plugins
from seu_bench.results.record_files import find_record, record_document
from seu_bench.utils.text import format_seconds


@request_command("results")
@click.option(
    "--state",
    type=click.Choice(["finished", "running", "interrupted", "failed", "unreadable"]),
    default=None,
    help="Only runs in this state.",
)
@click.option(
    "--rows",
    type=click.IntRange(min=0),
    default=200,
    show_default=True,
    help="Maximum runs in the terminal; 0: all.",
)
@format_option
def runs(results: Path, state: str | None, rows: int, form: str) -> None:
    """List runs and their states.

    Rerun the command of an interrupted or failed run to resume it from its newest checkpoint.
    """
    found = [run for run in list_runs(results) if state in (None, run.state)]
    shown = found if form == "json" or not rows else found[:rows]
    cells = [
        (
            run.run_id,
            run.state,
            f"{run.evaluated}/{len(run.record.task_names)}" if run.record else "-",
            format_seconds(run.record.seconds) if run.record else "-",
            run.position or "-",
            run.holder or (run.detail or "").partition("\n")[0],
        )
        for run in shown
    ]
    title = f"{len(found)} run{'s' * (len(found) != 1)}"
    if len(shown) < len(found):
        states = Counter(run.state for run in found)
        counted = ", ".join(f"{number:,} {name}" for name, number in states.most_common())
        title += f" ({counted}), the first {len(shown)}; --state chooses, --rows 0 shows all"
    table = new_table(title, ("run", "=state", ">tasks", ">time", "checkpoint", ""), cells)
    nothing = f"no runs in {results}" + (f" are {state}" if state else "")
    documents = [run.document() | {"scenario": run.record.scenario if run.record else None} for run in found]
    print_as(form, documents, [table if found else nothing])


@request_command("results", "plugin")
@click.argument("run_name", metavar="RUN", shell_complete=values.runs)
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
