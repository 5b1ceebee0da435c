"""``seu-bench report``: one HTML page and its figures, made from records."""

from __future__ import annotations

from pathlib import Path

import click

from seu_bench.cli.options import output_path, request_command
from seu_bench.plugin.registry import Registry
from seu_bench.utils.files import is_standard_output


@request_command("results")
@click.option(
    "--output",
    type=output_path,
    default=None,
    metavar="FILE",
    help="HTML file to write, or - for standard output [default: report.html in the results folder].",
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
@click.option("--allow-empty", is_flag=True, help="Replace a report that is there by one without any group.")
def report(
    results: Path,
    output: Path | None,
    benchmark: str | None,
    protocol: str | None,
    top: int,
    figures: int,
    allow_empty: bool,
) -> None:
    """Write a report: one HTML page that needs no network, and its figures as PDF, SVG and PNG.

    It is made from records alone, and can be repeated at any time.
    """
    from seu_bench.results.report import Limits, write_report

    limits = Limits(configurations=top, figures=figures)
    known = Registry().known_metrics
    written = write_report(results, output, benchmark, protocol, limits, known, allow_empty=allow_empty)
    aside = output is not None and is_standard_output(output)
    click.echo(f"report: {written.page} ({written.groups} group{'s' * (written.groups != 1)})", err=aside)
    if written.figures:
        folder = written.figures[0].parent
        click.echo(f"figures: {len(written.figures) // 3} in {folder}, each as PDF, SVG and PNG", err=aside)
    for line in written.outside:
        click.echo(f"  {line}", err=aside)
