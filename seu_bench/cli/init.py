"""``seu-bench init``: the benchmark file of a folder of images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from seu_bench.cli.options import request_command
from seu_bench.config.run import Request


@request_command("classes_per_task", "size")
@click.argument("folder")
def init(folder: str, **fields: Any) -> None:
    """Print the benchmark file of a folder of images.

    FOLDER has a folder for each class, which --classes-per-task cuts into tasks, or a folder of such class folders for
    each task; or it is a list of files, a .csv with the columns path,label and, where there are any, task and split.
    Save the file with > NAME.toml, change it, and give it to run --benchmark. Paths in it are as FOLDER is given.
    """
    from seu_bench.data.own_folders import own_benchmark
    from seu_bench.plugin.registry import Registry

    request = Request(benchmark=folder, **fields)
    _, text = own_benchmark(request, Registry().benchmarks, Path(folder).expanduser())
    click.echo(text, nl=False)
