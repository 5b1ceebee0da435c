"""``seu-bench log``: a record sent to a logger."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from seu_bench.cli.options import request_command
from seu_bench.plugin.registry import Registry
from seu_bench.results.record_files import find_record


@request_command("results", "log_options")
@click.argument("run_name", metavar="RUN")
@click.option("--to", "names", multiple=True, required=True, metavar="LOGGER", help="Logger; may be repeated.")
def log(run_name: str, names: tuple[str, ...], log_options: Mapping[str, Any], results: Path) -> None:
    """Send a record to a logger, e.g. because its server was not there during the run.

    RUN is a run id, a unique prefix of one, or the run's folder. What the logger has already is not sent again.
    """
    from seu_bench.engine.log_record import log_record

    record, registry = find_record(results, run_name), Registry()
    for name in names:
        given = {key: value for key, value in log_options.items() if key.startswith(f"{name}.") or len(names) == 1}
        log_record(registry, record, name, results, given)
        click.echo(f"{record.run_id}: sent to {name}")
