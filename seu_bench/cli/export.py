"""``seu-bench export``: the network of one task in another format."""

from __future__ import annotations

from pathlib import Path

import click

from seu_bench.cli.options import output_path, request_command
from seu_bench.utils.files import is_standard_output


@request_command("results")
@click.argument("run", metavar="RUN")
@click.option("--task", type=click.IntRange(min=0), required=True, help="Index of the task, from 0, as in the record.")
@click.option("--format", "form", type=click.Choice(["onnx"]), default="onnx", show_default=True)
@click.option(
    "--output",
    type=output_path,
    default=None,
    metavar="FILE",
    help="File to write, or - for standard output [default: in the run's folder].",
)
def export(run: str, results: Path, task: int, form: str, output: Path | None) -> None:
    """Export the network of one task to ONNX.

    RUN is a run id, a unique prefix of one, or the run's folder. The file holds the path of the task alone: input
    `images`, output `logits`, any batch size.
    """
    from seu_bench.engine.saved_model.export import export_onnx

    path = export_onnx(run, task, results=results, output=output)
    click.echo(f"{form}: {path}", err=is_standard_output(path))
