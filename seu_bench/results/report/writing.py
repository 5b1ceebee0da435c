"""Making a report: read the records, choose the pictures, render and write each, write the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from seu_bench.results.metric import Metric
from seu_bench.results.record_metrics import METRICS
from seu_bench.results.report.canvas import settings, size_on_page, to_png, to_svg
from seu_bench.results.report.page import RenderedFigure, render
from seu_bench.results.report.picture import Picture
from seu_bench.results.report.sections import Limits, read_sections
from seu_bench.utils.files import refuse_link, write_atomic
from seu_bench.utils.progress import tracked


@dataclass(frozen=True)
class ReportFiles:
    """Files of a report.

    Attributes:
        page: the HTML file.
        figures: the PNG and SVG files.
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
) -> ReportFiles:
    """Make the report of a results folder anew.

    Args:
        results: the results folder; figures go to its ``figures``.
        output: the page; ``<results>/report.html`` by default.
        benchmark, protocol: only groups of these.
        limits: how much is shown.
        metrics: those known, e.g. of the plugins installed; a column is shown where a record has its metric.

    Returns:
        The files, and which records are in none of its groups.

    Raises:
        ResultsError: there are no records, none of ``benchmark`` and ``protocol``, or nothing can be written there.

    Example:
        >>> from pathlib import Path
        >>> write_report(Path("results"), limits=Limits(configurations=4)).page  # doctest: +SKIP
        PosixPath('results/report.html')
    """
    from seu_bench.utils.locks import alone_in

    limits = limits or Limits()
    page = output or results / "report.html"
    folder = results / "figures"
    refuse_link(folder, "remove it; figures can be made again at any time")
    sections, outside = read_sections(results, benchmark, protocol, limits, metrics)
    work = [(section, picture) for section in sections for picture in (*section.comparing, *section.single)]
    figures: dict[int, RenderedFigure] = {}
    paths: list[Path] = []
    with alone_in(folder):
        for section, picture in tracked(work, "drawing figures"):
            name = f"{section.board.name}-{picture.kind}"
            figures[id(picture)], png = _rendered(name, picture)
            for ending, content in (("svg", figures[id(picture)].svg), ("png", png)):
                paths.append(folder / f"{name}.{ending}")
                write_atomic(paths[-1], content, durable=False)  # it can be made again at any time
        write_atomic(page, render(sections, figures, outside, limits))
    return ReportFiles(page, tuple(paths), tuple(outside), len(sections))


def _rendered(name: str, picture: Picture) -> tuple[RenderedFigure, bytes]:
    with settings():
        figure = picture.draw()
        return RenderedFigure(name, picture, to_svg(figure), *size_on_page(figure)), to_png(figure)
