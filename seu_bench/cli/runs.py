"""``seu-bench runs``: the runs of a results folder and their states."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from seu_bench.cli.options import format_option, print_as, request_command
from seu_bench.cli.tables import new_table
from seu_bench.engine.run_folder import list_runs
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
