"""``seu-bench report``: one HTML page and its figures, made from records."""

from __future__ import annotations

from pathlib import Path

import click

from seu_bench.cli.completion import values
from seu_bench.cli.options import output_path, request_command
from seu_bench.cli.output.verbosity import is_quiet, is_verbose, verbosity_options
from seu_bench.plugin.registry import Registry
from seu_bench.utils.files import is_standard_output


@verbosity_options
@request_command("results")
@click.option(
    "--output",
    type=output_path,
    default=None,
    metavar="FILE",
    shell_complete=values.files,
    help="HTML file to write, or - for standard output [default: report.html in the results folder].",
)
@click.option("--benchmark", default=None, shell_complete=values.names_of("benchmarks"), help="Only this benchmark.")
@click.option("--protocol", default=None, shell_complete=values.protocols, help="Only this protocol.")
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
@click.option(
    "--unranked",
    is_flag=True,
    help="Show finished runs that are never ranked, such as those of smoke, too: in groups of their own.",
)
@click.option("--allow-empty", is_flag=True, help="Replace a report that is there by one without any group.")
def report(
    results: Path,
    output: Path | None,
    benchmark: str | None,
    protocol: str | None,
    top: int,
    figures: int,
    unranked: bool,
    allow_empty: bool,
) -> None:
    """Write a report: one HTML page that needs no network, and its figures as PNG and SVG.

    It is made from records alone, and can be repeated at any time.
    """
    from seu_bench.results.report import Limits, write_report

    limits = Limits(configurations=top, figures=figures)
    known = Registry().known_metrics
    written = write_report(
        results, output, benchmark, protocol, limits, known, allow_empty=allow_empty, unranked=unranked
    )
    aside = output is not None and is_standard_output(output)
    if is_quiet():
        if not aside:
            click.echo(str(written.page))
        return
    click.echo(f"report: {written.page} ({written.groups} group{'s' * (written.groups != 1)})", err=aside)
    if written.figures:
        folder = written.figures[0].parent
        click.echo(f"figures: {len(written.figures) // 2} in {folder}, each as PNG and SVG", err=aside)
    if is_verbose():
        for path in written.figures:
            click.echo(f"  {path}", err=aside)
    for line in written.outside:
        click.echo(f"  {line}", err=aside)
    if written.outside and not written.groups and not unranked:
        click.echo("seu-bench report --unranked shows finished runs that are never ranked", err=aside)
