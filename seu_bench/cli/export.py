"""``seu-bench export``: the network of one task in another format."""

from __future__ import annotations

from pathlib import Path

import click

from seu_bench.cli.options import request_command


@request_command("results")
@click.argument("run", metavar="RUN")
@click.option("--task", type=click.IntRange(min=0), required=True, help="Index of the task, from 0, as in the record.")
@click.option("--format", "form", type=click.Choice(["onnx"]), default="onnx", show_default=True)
@click.option(
    "--output", type=click.Path(path_type=Path), default=None, help="File to write [default: in the run's folder]."
)
def export(run: str, results: Path, task: int, form: str, output: Path | None) -> None:
    """Export the network of one task to ONNX.

    RUN is a run id, a unique prefix of one, or the run's folder. The file holds the path of the task alone: input
    `images`, output `logits`, any batch size.
    """
    from seu_bench.engine.saved_model.export import export_onnx

    click.echo(f"{form}: {export_onnx(run, task, results=results, output=output)}")
