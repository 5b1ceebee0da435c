"""Making a report: read the records, choose the pictures, render and write each, then the page that holds them all.

Whatever comes from records is escaped by Jinja2.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from seu_bench._version import __version__
from seu_bench.results.leaderboard.markdown import LEGEND, cells
from seu_bench.results.metric import Metric
from seu_bench.results.record import Record
from seu_bench.results.record_metrics import METRICS
from seu_bench.results.report import paper
from seu_bench.results.report.canvas import PAGE_DPI, settings, to_png, to_svg
from seu_bench.results.report.picture import Picture
from seu_bench.results.report.sections import Limits, Section, read_sections
from seu_bench.utils.files import refuse_link, write_atomic
from seu_bench.utils.progress import tracked
from seu_bench.utils.text import printable


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
    figures: dict[int, dict[str, Any]] = {}
    paths: list[Path] = []
    with alone_in(folder):
        for section, picture in tracked(work, "drawing figures"):
            name = f"{section.board.name}-{picture.kind}"
            figures[id(picture)], svg, png = _rendered(name, picture)
            for ending, content in (("svg", svg), ("png", png)):
                paths.append(folder / f"{name}.{ending}")
                write_atomic(paths[-1], content, durable=False)  # it can be made again at any time
        write_atomic(page, _page(sections, figures, outside, limits))
    return ReportFiles(page, tuple(paths), tuple(outside), len(sections))


def _rendered(name: str, picture: Picture) -> tuple[dict[str, Any], str, bytes]:
    """A picture's values for the template, its SVG and its PNG."""
    with settings():
        figure = picture.draw()
        svg, png = to_svg(figure), to_png(figure)
    width, height = (round(inches * PAGE_DPI) for inches in figure.get_size_inches())
    source = "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
    values = {"name": name, "picture": picture, "source": source, "width": width, "height": height}
    return values, svg, png


def _page(
    sections: Sequence[Section], figures: Mapping[int, dict[str, Any]], outside: Sequence[str], limits: Limits
) -> str:
    """Render the page: ``figures`` by section id, ``outside`` the records in no section with the reason."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    folder = files("seu_bench.results.report") / "templates"
    style, script = ((folder / f"report.{ending}").read_text(encoding="utf-8") for ending in ("css", "js"))
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["printable"] = printable
    template = environment.from_string((folder / "report.html.j2").read_text(encoding="utf-8"))
    places = [section.place for section in sections]
    groups = [
        _group(section, figures, limits) | {"id": f"group-{number}", "twin": places.count(section.place) > 1}
        for number, section in enumerate(sections)
    ]
    started = [run.started for section in sections for each in section.drawn for run in each.runs]
    return template.render(
        title="Lifelong learning: results",
        version=__version__,
        # The page may load pictures within itself, its one style and its one script, and nothing else.
        policy=f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'",
        # Our own files, which hold nothing of a record; as text they would be escaped.
        style=Markup(style),
        script=Markup(script),
        paper_source=paper.source(),
        records=sum(section.board.records for section in sections),
        figures=len(figures),
        latest=max(started, default=""),
        legend=LEGEND,
        groups=groups,
        outside=outside,
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _group(section: Section, figures: Mapping[int, dict[str, Any]], limits: Limits) -> dict[str, Any]:
    board = section.board
    runs = [(configuration.rank, run) for configuration in section.drawn for run in configuration.runs]
    return {
        "section": section,
        "board": board,
        "rows": list(zip(board.rows[: limits.rows], cells(board, most=limits.rows), strict=False)),
        "strategies": sorted({printable(row.record.strategy) for row in board.rows[: limits.rows]}),
        "paper": paper.beside_ours(*section.place, section.drawn),
        "comparing": [figures[id(picture)] for picture in section.comparing],
        "single": [figures[id(picture)] for picture in section.single],
        "runs": [_run(rank, run) for rank, run in runs[: limits.runs]],
        "all_runs": len(runs),
    }


def _run(rank: int, run: Record) -> list[str]:
    shown = ("acc", "forgetting", "params_total", "train_seconds")
    values = [METRICS[name].format(run.metrics.get(name)) for name in shown]
    return [str(rank), run.run_id, str(run.seed), *values, printable(run.environment.device), printable(run.started)]
