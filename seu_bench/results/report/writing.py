"""Making a report: read the records, choose the pictures, render and write each, then the page that holds them all.

Whatever comes from records is escaped by Jinja2.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from seu_bench._version import __version__
from seu_bench.errors import OptionError, ResultsError
from seu_bench.results.leaderboard import tuned_rows
from seu_bench.results.leaderboard.markdown import cells, notes
from seu_bench.results.metric import Metric
from seu_bench.results.record import Record
from seu_bench.results.record_metrics import METRICS
from seu_bench.results.report import paper
from seu_bench.results.report.draw_ranks import RankSection
from seu_bench.results.report.figures import EVERY, all_pictures, keep, write_files
from seu_bench.results.report.layout import PAGE, Layout
from seu_bench.results.report.rendering import FORMATS, RenderedFigure, render
from seu_bench.results.report.sections import Limits, Section, read_sections
from seu_bench.results.statistics.words import HEADINGS, MEANING, difference_cells
from seu_bench.utils.files import check_output, is_standard_output, refuse_link, write_output
from seu_bench.utils.locks import alone_in
from seu_bench.utils.progress import tracked
from seu_bench.utils.text import printable


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
        allow_empty: whether a report without any group may replace another one.
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
    sections, ranks, outside = read_sections(results, benchmark, protocol, reading, metrics)
    is_there = not is_standard_output(page) and os.path.lexists(page)
    if is_there and not (sections or allow_empty):
        raise ResultsError(
            "no record can be reported now, and there is a report already, which would be replaced by an empty one",
            where=str(page),
            remedy="see why with seu-bench leaderboard; or give --allow-empty, or another --output",
        )
    if names:
        ranks = keep(sections, ranks, names)
    images: dict[str, RenderedFigure] = {}
    paths: list[Path] = []
    with alone_in(folder):
        for name, picture in tracked(all_pictures(sections, ranks), "drawing figures"):
            images[name] = render(name, picture, layout)
            paths += write_files(folder, images[name])
        write_output(page, _page(sections, ranks, images, outside, limits))
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


def _page(
    sections: Sequence[Section],
    ranks: Sequence[RankSection],
    images: Mapping[str, RenderedFigure],
    outside: Sequence[str],
    limits: Limits,
) -> str:
    """Render the page: ``images`` by name, ``outside`` the records in no section with the reason."""
    folder = files("seu_bench.results.report") / "templates"
    style, script, template = (
        (folder / f"report.{ending}").read_text(encoding="utf-8") for ending in ("css", "js", "html.j2")
    )
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["printable"] = printable
    return environment.from_string(template).render(
        title="Lifelong learning: results",
        version=__version__,
        # The page may load pictures within itself, its one style and its one script, and nothing else.
        policy=f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'",
        # Our own files, which hold nothing of a record; as text they would be escaped.
        style=Markup(style),
        script=Markup(script),
        sections=sections,
        ranks=ranks,
        latest=max((run.started for section in sections for _, run in section.runs), default=""),
        images=images,
        outside=outside,
        limits=limits,
        # What the template calls for each section.
        cells=cells,
        notes_on=notes,
        tuning=tuned_rows,
        paper=paper,
        beside_best=_beside_best,
        meaning=MEANING,
        run_cells=_run_cells,
        zip=zip,
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _beside_best(section: Section) -> tuple[str, list[Sequence[str]]]:
    """The most accurate row, and the differences of the others that are drawn to it: headings, then a row for each."""
    best, others = section.board.beside_best("acc")
    drawn = {each.number: each.title for each in section.drawn}
    rows = [
        (drawn[row.number], str(found.pairs), *difference_cells(found, METRICS["acc"]))
        for row, found in others.items()
        if row.number in drawn
    ]
    if best is None or not rows:
        return "", []
    return f"{best.number} {printable(best.configuration)}", [("configuration", "seeds", *HEADINGS), *rows]


def _run_cells(runs: Sequence[tuple[int, Record]]) -> list[list[str]]:
    shown = ("acc", "forgetting", "params_total", "train_seconds")
    return [
        [str(number), run.run_id, str(run.seed)]
        + [METRICS[name].format(run.metrics.get(name)) for name in shown]
        + [printable(run.environment.device), printable(run.started)]
        for number, run in runs
    ]
