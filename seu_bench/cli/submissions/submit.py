"""``seu-bench submit``: runs copied into a shared folder."""

from __future__ import annotations

import re
from pathlib import Path

import click

from seu_bench.cli.completion import run_ids
from seu_bench.cli.options import known_metrics, request_command
from seu_bench.cli.verbosity import is_quiet, verbosity_options
from seu_bench.config.commands import command
from seu_bench.results.submissions.submitting import submit as submitted


@verbosity_options
@request_command("results")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=run_ids)
@click.option(
    "--to",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Shared folder, e.g. a checkout of a leaderboard's repository; made if there is none.",
)
@click.option("--submitter", required=True, metavar="TEXT", help="Person or group, as it is to be shown.")
@click.option("--licence", required=True, metavar="NAME", help="Licence of records and models, e.g. CC-BY-4.0.")
@click.option("--contact", default="", metavar="TEXT", help="Where questions go, e.g. an address on the web.")
@click.option("--note", default="", metavar="TEXT", help="About the runs.")
@click.option("--name", default=None, metavar="NAME", help="Name of the submission's file [default: from --submitter].")
@click.option("--models/--no-models", default=True, help="Copy the models, by which others verify the records.")
def submit(
    runs: tuple[str, ...],
    results: Path,
    folder: Path,
    submitter: str,
    licence: str,
    contact: str,
    note: str,
    name: str | None,
    models: bool,
) -> None:
    """Copy runs into a shared leaderboard's folder, and write the manifest.

    RUN is a run id, a unique prefix of one, or a run's folder. Runs that would not be accepted are refused, and then
    nothing is written.
    """
    chosen = re.sub(r"[^a-z0-9]+", "-", (name or submitter).lower())[:100].strip("-") or "submission"
    about = {"submitter": submitter, "licence": licence, "contact": contact, "note": note}
    made = submitted(runs, folder, chosen, about=about, results=results, weights=models, metrics=known_metrics())
    if not is_quiet():
        click.echo(f"{len(made.runs)} runs, {made.models} of them with models: {made.path}")
        click.echo(f"{command('check-submission', '--', str(folder))} checks what is there")
