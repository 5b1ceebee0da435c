"""``seu-bench report``: one HTML page and its figures, or figures alone, made from records."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from seu_bench.cli.completion import names_of
from seu_bench.cli.options import output_path, request_command
from seu_bench.cli.verbosity import is_quiet, is_verbose, verbosity_options
from seu_bench.config.commands import command
from seu_bench.plugin.registry import Registry
from seu_bench.utils.files import is_standard_output

if TYPE_CHECKING:
    from seu_bench.results.report import FigureFiles, ReportFiles

#: Endings of figures.
_FIGURES = (".pdf", ".svg", ".png")


def _width(value: str) -> float:
    """Type of ``--column-width``."""
    from seu_bench.results.report.layout import column_width

    try:
        return column_width(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _font(value: str) -> tuple[str, ...]:
    """Type of ``--font``."""
    from seu_bench.results.report.layout import font_families

    try:
        return font_families(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@verbosity_options
@request_command("results")
@click.option(
    "--output",
    default=None,
    metavar="PATH",
    help="HTML page to write (.html), or - for standard output; or figures alone: a folder, with a slash at its end, "
    "or a .pdf, .svg or .png, for one that --figure chooses [default: report.html in the results folder].",
)
@click.option("--benchmark", default=None, shell_complete=names_of("benchmarks"), help="Only this benchmark.")
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
@click.option(
    "--unranked",
    is_flag=True,
    help="Show finished runs that are never ranked, such as those of smoke, too: in groups of their own.",
)
@click.option(
    "--static",
    "is_static",
    is_flag=True,
    help="Figures only, no charts that answer to the pointer: a page without their library is 2 MB smaller.",
)
@click.option(
    "--figure",
    "names",
    multiple=True,
    metavar="NAME",
    help="Only this figure, such as average-accuracy, or its file's name for that of one group; * stands for letters.",
)
@click.option(
    "--column-width",
    "width",
    type=_width,
    default=None,
    metavar="WIDTH",
    help="Width of figures for a paper, such as 3.25in, 8.25cm or 234pt, or its template's: icml, neurips, ieee, ...",
)
@click.option(
    "--font",
    "families",
    type=_font,
    default="sans",
    metavar="FONT",
    help="Font of figures: sans, serif (Times), cmr (Computer Modern), or an installed TrueType font [default: sans].",
)
@click.option("--allow-empty", is_flag=True, help="Replace a report that is there by one without any group.")
def report(
    results: Path,
    output: str | None,
    benchmark: str | None,
    protocol: str | None,
    top: int,
    figures: int,
    names: tuple[str, ...],
    width: float | None,
    families: tuple[str, ...],
    unranked: bool,
    is_static: bool,
    allow_empty: bool,
) -> None:
    """Write a report: one HTML page that needs no network, and its figures as PDF, SVG and PNG.

    It is made from records alone, and can be repeated at any time. For a paper: seu-bench report --output figures/
    --column-width icml --font serif
    """
    from seu_bench.results.report import Layout, Limits, write_figures, write_report

    limits, layout = Limits(configurations=top, figures=figures), Layout(width, families)
    known = Registry().known_metrics
    path = None if output is None else output_path(output)
    if output is not None and path is not None and _is_of_figures(output, path):
        drawn = write_figures(
            results, path, names, benchmark, protocol, limits, known, layout=layout, unranked=unranked
        )
        _say_figures(path, drawn)
        return
    written = write_report(
        results,
        path,
        benchmark,
        protocol,
        limits,
        known,
        allow_empty=allow_empty,
        is_interactive=not is_static,
        unranked=unranked,
        names=names,
        layout=layout,
    )
    _say_report(written, results, unranked, err=path is not None and is_standard_output(path))


def _is_of_figures(output: str, path: Path) -> bool:
    """Whether figures alone are meant: a folder, or the file of a figure."""
    return output.endswith(("/", os.sep)) or path.suffix.lower() in _FIGURES


def _say_figures(path: Path, written: FigureFiles) -> None:
    if is_quiet():
        click.echo(str(path))
        return
    count = len(written.figures)
    if written.paths == (path,):
        click.echo(f"figure: {path}, {written.figures[0].inches[0]:.2f} x {written.figures[0].inches[1]:.2f} inches")
    else:
        click.echo(f"figures: {count} in {path}, each as PDF, SVG and PNG; captions in {written.paths[-1].name}")
    for line in written.notes:
        click.echo(f"  {line}")


def _say_report(written: ReportFiles, results: Path, unranked: bool, *, err: bool) -> None:
    """``unranked``: whether runs that are never ranked were asked for; ``err``: standard output has the page."""
    if is_quiet():
        if not err:
            click.echo(str(written.page))
        return
    click.echo(f"report: {written.page} ({written.groups} group{'s' * (written.groups != 1)})", err=err)
    if written.figures:
        folder = written.figures[0].parent
        click.echo(f"figures: {len(written.figures) // 3} in {folder}, each as PDF, SVG and PNG", err=err)
    if is_verbose():
        for path in written.figures:
            click.echo(f"  {path}", err=err)
    for line in written.outside:
        click.echo(f"  {line}", err=err)
    if written.outside and not written.groups and not unranked:
        shown = command("report", "--unranked", results=results)
        click.echo(f"{shown} shows finished runs that are never ranked", err=err)
