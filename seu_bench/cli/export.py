"""``seu-bench export`` and ``log``: the network of one task in another format, a record in another program."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from seu_bench.cli.options import output_path, request_command
from seu_bench.cli.verbosity import is_quiet, quiet_option
from seu_bench.plugin.registry import Registry, use_plugins
from seu_bench.results.record_files import find_record


@quiet_option
@request_command("results", "plugin")
@click.argument("run", metavar="RUN")
@click.option("--task", type=click.IntRange(min=0), required=True, help="Index of the task, from 0, as in the record.")
@click.option(
    "--output",
    type=output_path,
    default=None,
    metavar="FILE",
    help="File to write [default: in the run's folder].",
)
def export(run: str, results: Path, task: int, output: Path | None, plugin: tuple[Path, ...]) -> None:
    """Export the network of one task to ONNX.

    RUN is a run id, a unique prefix of one, or the run's folder. The file holds the path of the task alone: input
    `images`, 8-bit pixels as the data set has them, output `logits`, any batch size. Its metadata names their classes.
    """
    from seu_bench.engine.saved_model import export_onnx

    use_plugins(plugin)
    path = export_onnx(run, task, results=results, output=output)
    click.echo(str(path) if is_quiet() else f"onnx: {path}")


@quiet_option
@request_command("results", "log_options")
@click.argument("run_name", metavar="RUN")
@click.option(
    "--to",
    "names",
    multiple=True,
    required=True,
    metavar="LOGGER",
    help="Logger; may be repeated.",
)
def log(run_name: str, names: tuple[str, ...], log_options: Mapping[str, Any], results: Path) -> None:
    """Send a record to a logger, e.g. because its server was not there during the run.

    RUN is a run id, a unique prefix of one, or the run's folder. What the logger has already is not sent again.
    """
    from seu_bench.engine.loggers import choose_loggers, log_record

    record, registry = find_record(results, run_name), Registry()
    choose_loggers(registry, names, log_options)  # refuses before anything is sent
    for name in names:
        given = {key: value for key, value in log_options.items() if key.startswith(f"{name}.")}
        log_record(registry, record, name, results, given)
        if not is_quiet():
            click.echo(f"{record.run_id}: sent to {name}")
