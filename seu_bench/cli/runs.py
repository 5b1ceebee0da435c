"""``seu-bench runs``: the runs of a results folder and their states."""

from __future__ import annotations

import json
from pathlib import Path

import click

from seu_bench.cli.options import results_option


@click.command()
@results_option
@click.option(
    "--state",
    type=click.Choice(["finished", "running", "interrupted", "failed", "unreadable"]),
    default=None,
    help="Only these.",
)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def runs(results: Path, state: str | None, form: str) -> None:
    """List runs and where they stand.

    One that was interrupted or failed goes on from its newest checkpoint when its command is given again.
    """
    from seu_bench.cli.tables import runs_table, wide_console
    from seu_bench.engine.run_states import list_runs

    found = [run for run in list_runs(results) if state in (None, run.state)]
    if form == "json":
        click.echo(json.dumps([run.document() for run in found], indent=1))
    elif found:
        wide_console().print(runs_table(found))
    else:
        click.echo(f"no runs in {results}" + (f" are {state}" if state else ""))
