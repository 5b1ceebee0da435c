"""``seu-bench show``: one record."""

from __future__ import annotations

from pathlib import Path

import click

from seu_bench.cli.completion import values
from seu_bench.cli.options import format_option, known_metrics, request_command
from seu_bench.cli.tables import accuracy_summary, record_summary, wide_console
from seu_bench.errors import OptionError
from seu_bench.results.record_files import find_record, record_document


@request_command("results")
@click.argument("run_name", metavar="RUN", shell_complete=values.runs)
@click.option("--plot", is_flag=True, help="Show the accuracy matrix alone.")
@format_option
def show(run_name: str, plot: bool, results: Path, form: str) -> None:
    """Show the record of a run.

    RUN is a run id, a unique prefix of one, or the run's folder. With --format json the record is printed as its file
    has it.
    """
    if form == "json":
        if plot:
            raise OptionError("--plot has no --format json", remedy="leave out one of the two")
        click.echo(record_document(results, run_name), nl=False)
        return
    record = find_record(results, run_name)
    wide_console().print(accuracy_summary(record) if plot else record_summary(record, known_metrics()))
