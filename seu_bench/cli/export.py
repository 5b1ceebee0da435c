"""``seu-bench export``: the model of a run in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from seu_bench.cli.completion import run_ids
from seu_bench.cli.options import output_path, request_command
from seu_bench.cli.verbosity import is_quiet, quiet_option
from seu_bench.plugin.registry import use_plugins

#: ``--task`` of commands that ask a model.
task_option = click.option(
    "--task",
    metavar="TASK",
    help="Name or index (from 0, as in the record) of the samples' task; needed where the run is task-incremental, or "
    "prepared the samples of its tasks in different ways.",
)


@quiet_option
@request_command("results", "plugin")
@click.argument("run", metavar="RUN", shell_complete=run_ids)
@task_option
@click.option(
    "--input",
    "pixels",
    type=click.Choice(["uint8", "float"]),
    default="uint8",
    show_default=True,
    help="How images are given: whole numbers from 0 to 255, or floating point in [0, 1].",
)
@click.option(
    "--output",
    type=output_path,
    default=None,
    metavar="FILE",
    help="File to write [default: in the run's folder].",
)
def export(
    run: str, results: Path, task: str | None, pixels: Any, output: Path | None, plugin: tuple[Path, ...]
) -> None:
    """Export the model of a run to ONNX.

    RUN is a run id, a unique prefix of one, or the run's folder. Input `images`: pixels [N, H, W, C] of any height and
    width, which the graph resizes and normalises; outputs `logits` and `probabilities`, whose classes its metadata
    names in their order. With --task the file of a run with a path for each task holds this path alone.
    """
    from seu_bench.engine.onnx_export import export_onnx

    use_plugins(plugin)
    path = export_onnx(run, task, pixels=pixels, results=results, output=output)
    click.echo(str(path) if is_quiet() else f"onnx: {path}")
