"""Making a report: read the records, choose the pictures, render and write each, then the page that holds them all."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seu_bench.config.commands import command
from seu_bench.errors import OptionError, ResultsError
from seu_bench.results.metric import Metric
from seu_bench.results.record_metrics import METRICS
from seu_bench.results.report.figures import EVERY, all_pictures, keep, write_files
from seu_bench.results.report.layout import PAGE, Layout
from seu_bench.results.report.page.rendered import PageContent, render_page
from seu_bench.results.report.rendering import FORMATS, RenderedFigure, render
from seu_bench.results.report.sections import Limits, read_sections
from seu_bench.utils.files import check_output, is_standard_output, refuse_link, write_output
from seu_bench.utils.locks import folder_lock
from seu_bench.utils.progress import tracked


@dataclass(frozen=True)
class ReportFiles:
    """Files of a report.

    Attributes:
        page: the HTML file.
        figures: the PDF, SVG and PNG files.
        outside: which records are in no group, and why, one line for each reason.
        groups: how many there are.
    """

    page: Path
    figures: tuple[Path, ...]
    outside: tuple[str, ...]
    groups: int


def write_report(
    results: Path,
    output: Path | None = None,
    benchmark: str | None = None,
    protocol: str | None = None,
    limits: Limits | None = None,
    metrics: Mapping[str, Metric] = METRICS,
    *,
    allow_empty: bool = False,
    is_interactive: bool = True,
    unranked: bool = False,
    names: Sequence[str] = (),
    layout: Layout = PAGE,
) -> ReportFiles:
    """Make the report of a results folder anew.

    Args:
        results: the results folder; figures go to its ``figures``.
        output: the page; ``<results>/report.html`` by default, ``-`` for standard output.
        benchmark, protocol: only groups of these.
        limits: how much is shown.
        metrics: those known, e.g. of the plugins installed; a column is shown where a record has its metric.
        is_interactive: whether charts of the page answer to the pointer, for which a library of 2 MB is in it.
        allow_empty: whether a report without any group may replace another one.
        unranked: whether finished runs that are never ranked are shown, too, in groups of their own.
        names: which figures, by kind or name, whatever ``limits`` say of their number; all by default.
        layout: width and font of the figures, e.g. of a paper's column.

    Returns:
        The files, and which records are in none of its groups.

    Raises:
        ResultsError: there are no records, none of ``benchmark`` and ``protocol``, none that can be reported where
            there is a report already, no figure of ``names``, or nothing can be written there.
        OptionError: ``output`` ends like something else than a page.

    Example:
        >>> from pathlib import Path
        >>> write_report(Path("results"), limits=Limits(configurations=4)).page  # doctest: +SKIP
        PosixPath('results/report.html')
    """
    limits = limits or Limits()
    page = output or results / "report.html"
    check_output(page)
    _check_ending(page)
    folder = results / "figures"
    refuse_link(folder, "remove it; figures can be made again at any time")
    reading = replace(limits, figures=EVERY) if names else limits
    sections, ranks, outside = read_sections(results, benchmark, protocol, reading, metrics, unranked=unranked)
    is_there = not is_standard_output(page) and os.path.lexists(page)
    if is_there and not (sections or allow_empty):
        raise ResultsError(
            "no record can be reported now, and there is a report already, which would be replaced by an empty one",
            where=str(page),
            remedy=f"see why: {command('leaderboard', results=results)}; or give --allow-empty, or another --output",
        )
    if names:
        ranks = keep(sections, ranks, names)
    images: dict[str, RenderedFigure] = {}
    paths: list[Path] = []
    with folder_lock(folder):
        for name, picture in tracked(all_pictures(sections, ranks), "drawing figures"):
            images[name] = render(name, picture, layout)
            paths += write_files(folder, images[name])
        content = PageContent(sections, ranks, images, outside, limits, is_interactive)
        write_output(page, render_page(content))
    return ReportFiles(page, tuple(paths), tuple(outside), len(sections))


def _check_ending(page: Path) -> None:
    """Refuse a page whose ending says that it is something else, or nothing."""
    if is_standard_output(page) or page.suffix.lower() in (".html", ".htm"):
        return
    ending = page.suffix.lower()
    remedy = f"{page.stem}.html is a page, {page.stem}/ a folder for figures alone"
    if ending.removeprefix(".") in FORMATS:
        remedy = f"call it {page.stem}.html; {page.name} would be a figure, which --figure chooses"
    elif ending in (".csv", ".json", ".md", ".tex"):
        remedy = f"call it {page.stem}.html; seu-bench leaderboard writes tables"
    raise OptionError("a report is an HTML page, and this is not called one", where=str(page), remedy=remedy)
