"""``seu-bench show``: one record."""

from __future__ import annotations

from pathlib import Path

import click

from seu_bench.cli.options import known_metrics, request_command
from seu_bench.cli.tables import accuracy_summary, record_summary, wide_console
from seu_bench.results.record_files import find_record


@request_command("results")
@click.argument("run_name", metavar="RUN")
@click.option("--plot", is_flag=True, help="Show the accuracy matrix alone.")
def show(run_name: str, plot: bool, results: Path) -> None:
    """Show the record of a run.

    RUN is a run id, a unique prefix of one, or the run's folder.
    """
    record = find_record(results, run_name)
    wide_console().print(accuracy_summary(record) if plot else record_summary(record, known_metrics()))
