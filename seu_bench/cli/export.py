"""``seu-bench export``: the network of one task in another format."""

from __future__ import annotations

from pathlib import Path

import click

from seu_bench.cli.completion import run_ids
from seu_bench.cli.options import output_path, request_command
from seu_bench.cli.verbosity import is_quiet, quiet_option
from seu_bench.plugin.registry import use_plugins


@quiet_option
@request_command("results", "plugin")
@click.argument("run", metavar="RUN", shell_complete=run_ids)
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
