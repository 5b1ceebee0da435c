"""Command ``seu-bench best``: imported when it runs or its help is shown."""

from pathlib import Path

import click

import seu_bench


@click.command()
@click.option("--results", type=click.Path(path_type=Path), default=Path("results"), help="Folder of records.")
def best(results: Path) -> None:
    """Print the best accuracy of all records."""
    top = seu_bench.load_records(results).sort_values("acc").iloc[-1]
    click.echo(f"{top['run_id']}: {top['acc']:.3f}")
