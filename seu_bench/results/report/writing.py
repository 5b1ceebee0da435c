"""The story of a report: read the records, plan the pictures, draw and write each, write the page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from seu_bench.results.report.page import RenderedFigure, render
from seu_bench.results.report.picture import Picture
from seu_bench.results.report.plan import Limits, Plan, make_plans
from seu_bench.results.report.source import read_groups
from seu_bench.utils.files import refuse_link, write_atomic
from seu_bench.utils.progress import tracked


@dataclass(frozen=True)
class ReportFiles:
    """What a report left.

    Attributes:
        page: the HTML file.
        figures: the PNG and SVG files.
        outside: which records are in no group, and why.
        groups: how many.
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
) -> ReportFiles:
    """Make the report of a results folder anew.

    Args:
        results: the folder that holds ``runs``; figures go to its ``figures``.
        output: the page; ``<results>/report.html`` by default.
        benchmark, protocol: only groups of these.
        limits: how much is shown.

    Raises:
        ResultsError: there are no records, none of ``benchmark`` and ``protocol``, or nothing can be written there.
    """
    from seu_bench.utils.locks import alone_in

    limits = limits or Limits()
    page = output or results / "report.html"
    folder = results / "figures"
    refuse_link(folder, "remove it; figures can be made again at any time")
    groups, outside = read_groups(results, benchmark, protocol, limits.configurations, limits.groups)
    plans = make_plans(groups, limits)
    work = [(plan, picture) for plan in plans for picture in plan.pictures]
    finished: dict[int, RenderedFigure] = {}
    paths: list[Path] = []
    with alone_in(folder):
        for plan, picture in tracked(work, "drawing figures"):
            finished[id(picture)], written = _write(folder, plan, picture)
            paths += written
        write_atomic(page, render(plans, finished, outside, limits))
    return ReportFiles(page, tuple(paths), tuple(outside), len(groups))


def _write(folder: Path, plan: Plan, picture: Picture) -> tuple[RenderedFigure, list[Path]]:
    from seu_bench.results.report.canvas import settings, size_on_page, to_png, to_svg

    name = f"{plan.group.name}-{picture.kind}"
    with settings():
        figure = picture.draw()
        svg, png = to_svg(figure), to_png(figure)
        width, height = size_on_page(figure)
    contents: dict[Path, str | bytes] = {folder / f"{name}.svg": svg, folder / f"{name}.png": png}
    for path, content in contents.items():
        write_atomic(path, content, durable=False)  # they can be made again at any time
    return RenderedFigure(f"figure-{name}", f"figures/{name}", picture, svg, width, height), list(contents)
