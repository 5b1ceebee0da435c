"""``seu-bench report``: one HTML page, and figures where asked for, made from records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from seu_bench.cli.completion import names_of
from seu_bench.cli.options import output_path, pause_collection, request_command
from seu_bench.cli.verbosity import is_quiet, quiet_option
from seu_bench.plugin.registry import Registry

if TYPE_CHECKING:
    from seu_bench.results.report.drawing import Layout


def _layout(value: str) -> Layout:
    from seu_bench.results.report.drawing import Layout

    try:
        return Layout() if value == "page" else Layout.of(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@quiet_option
@request_command("results")
@click.option("--output", default=None, metavar="PATH", help="HTML page [default: report.html in the results].")
@click.option("--benchmark", default=None, shell_complete=names_of("benchmarks"), help="Only this benchmark.")
@click.option("--protocol", default=None, help="Only this protocol.")
@click.option(
    "--top", type=click.IntRange(0, 24), default=8, help="Most configurations drawn in each group; 0: none [8]."
)
@click.option(
    "--figures",
    "layout",
    type=_layout,
    is_flag=False,
    flag_value="page",
    metavar="[WIDTH]",
    help="Also write figures as PDF, SVG and PNG: 3.25in, 8.25cm or 234pt wide, or for a venue, such as icml.",
)
def report(
    results: Path, output: str | None, benchmark: str | None, protocol: str | None, top: int, layout: Layout | None
) -> None:
    """Write a report: one HTML page with interactive charts, which needs no network.

    It is made from records alone, and can be repeated at any time. Figures for a paper: seu-bench report --figures icml
    """
    from seu_bench.results.report.page import write_report

    pause_collection()
    page = None if output is None else output_path(output)
    known = Registry()
    written = write_report(
        results, page, benchmark, protocol, known.known_metrics, top=top, layout=layout, installed=known.kinds
    )
    if is_quiet():
        click.echo(str(written.page))
        return
    click.echo(f"report: {written.page} ({written.groups} group{'s' * (written.groups != 1)})")
    if written.figures:
        folder = written.figures[0].parent
        click.echo(f"figures: {len(written.figures) // 3} in {folder}, each as PDF, SVG and PNG")
    for line in written.outside:
        click.echo(f"  {line}")
