"""``seu-bench export``: the network of one task in another format."""

from __future__ import annotations

from pathlib import Path

import click

from seu_bench.cli.options import results_option


@click.command()
@click.argument("run", metavar="RUN")
@results_option
@click.option("--task", type=click.IntRange(min=0), required=True, help="Which task, from 0, as in the record.")
@click.option("--format", "form", type=click.Choice(["onnx"]), default="onnx", show_default=True)
@click.option(
    "--output", type=click.Path(path_type=Path), default=None, help="File to write [default: in the run's folder]."
)
def export(run: str, results: Path, task: int, form: str, output: Path | None) -> None:
    """Write the network of one task as ONNX.

    RUN is a run id, a unique beginning of one, or its folder. The file has the path of the task alone: input `images`,
    output `logits`, any number of images at once.
    """
    from seu_bench.engine.saved_model.onnx import export_onnx

    click.echo(f"{form}: {export_onnx(run, task, results=results, output=output)}")
