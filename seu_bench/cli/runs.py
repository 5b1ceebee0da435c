"""``seu-bench runs``: the runs of a results folder and their states."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from seu_bench.cli.options import format_option, request_command

if TYPE_CHECKING:
    from rich.table import Table

    from seu_bench.engine.run_states import RunState


@request_command("results")
@click.option(
    "--state",
    type=click.Choice(["finished", "running", "interrupted", "failed", "unreadable"]),
    default=None,
    help="Only runs in this state.",
)
@format_option
def runs(results: Path, state: str | None, form: str) -> None:
    """List runs and their states.

    Rerun the command of an interrupted or failed run to resume it from its newest checkpoint.
    """
    from seu_bench.cli.tables import wide_console
    from seu_bench.engine.run_states import list_runs

    found = [run for run in list_runs(results) if state in (None, run.state)]
    if form == "json":
        click.echo(json.dumps([run.document() for run in found], indent=1))
    elif found:
        wide_console().print(_table(found))
    else:
        click.echo(f"no runs in {results}" + (f" are {state}" if state else ""))


def _table(runs: Sequence[RunState]) -> Table:
    from seu_bench.cli.tables import literal, new_table
    from seu_bench.utils.text import format_seconds

    table = new_table(f"{len(runs)} run{'s' * (len(runs) != 1)}", "run", "state", ">tasks", ">time", "checkpoint", "")
    table.columns[1].no_wrap = True
    for run in runs:
        record = run.record
        table.add_row(
            literal(run.run_id),
            run.state,
            f"{run.evaluated}/{len(record.task_names)}" if record else "-",
            format_seconds(record.seconds) if record else "-",
            literal(run.position or "-"),
            literal(run.holder or (run.detail or "").partition("\n")[0]),
        )
    return table
