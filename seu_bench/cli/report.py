"""``seu-bench report``: one HTML page and its figures, made from records."""

from __future__ import annotations

from pathlib import Path

import click

from seu_bench.cli.options import request_command
from seu_bench.plugin.registry import Registry


@request_command("results")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    metavar="FILE",
    help="HTML file to write [default: report.html in the results folder].",
)
@click.option("--benchmark", default=None, help="Only this benchmark.")
@click.option("--protocol", default=None, help="Only this protocol.")
@click.option(
    "--top",
    type=click.IntRange(1, 24),
    default=8,
    show_default=True,
    help="Maximum configurations drawn in each group.",
)
@click.option(
    "--figures",
    type=click.IntRange(min=0),
    default=30,
    show_default=True,
    help="Maximum figures of all groups together.",
)
def report(
    results: Path, output: Path | None, benchmark: str | None, protocol: str | None, top: int, figures: int
) -> None:
    """Write a report: one HTML page that needs no network, and its figures as PNG and SVG.

    It is made from records alone, and can be repeated at any time.
    """
    from seu_bench.results.report import Limits, write_report

    limits = Limits(configurations=top, figures=figures)
    written = write_report(results, output, benchmark, protocol, limits, Registry().known_metrics)
    click.echo(f"report: {written.page} ({written.groups} group{'s' * (written.groups != 1)})")
    if written.figures:
        click.echo(f"figures: {len(written.figures) // 2} in {written.figures[0].parent}, each as PNG and SVG")
    for line in written.outside:
        click.echo(f"  {line}")
