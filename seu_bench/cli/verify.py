"""``seu-bench verify``: a record checked against the weights of its run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from seu_bench.cli.options import format_option, request_command

if TYPE_CHECKING:
    from seu_bench.engine.saved_model.checks import Verification

#: Outcome of a check.
_WORDS = {True: "ok", False: "FAILED", None: "skipped"}


@request_command("results", "data_root", "device")
@click.argument("run", metavar="RUN")
@click.option(
    "--benchmark",
    type=click.Path(path_type=Path),
    default=None,
    help="TOML file of the run's benchmark, if it is not an installed one.",
)
@format_option
def verify(run: str, results: Path, data_root: Path | None, device: str, benchmark: Path | None, form: str) -> None:
    """Check a record against the weights of its run.

    RUN is a run id, a unique prefix of one, or the run's folder. The model is rebuilt from disk and evaluated on the
    test images of every task. Exit status 1 if anything differs.
    """
    from seu_bench.engine.saved_model.verify import verify as verified
    from seu_bench.plugin.registry import Registry

    found = verified(Registry(), run, results=results, data_root=data_root, device=device, benchmark=benchmark)
    if form == "json":
        click.echo(json.dumps(found.document(), indent=1))
    else:
        _show(found)
    if not found.passed:
        raise SystemExit(1)


def _show(found: Verification) -> None:
    from rich.text import Text

    from seu_bench.cli.tables import literal, new_table, wide_console

    table = new_table(found.record.run_id, "check", "", "found")
    for check in found.checks:
        table.add_row(check.name, _WORDS[check.passed], Text("\n").join(map(literal, check.detail)))
    for column in table.columns[:2]:
        column.no_wrap = True
    wide_console().print(table)
    failed = [check.name for check in found.checks if check.passed is False]
    if failed:
        click.echo(f"{len(failed)} of {len(found.checks)} checks failed: {', '.join(failed)}")
    else:
        click.echo("the record matches its weights")
