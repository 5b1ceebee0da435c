"""The page: everything that a report shows, rendered by the templates.

Whatever comes from records is escaped by Jinja2.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from seu_bench._version import __version__
from seu_bench.results.comparison import HEADINGS, MEANING, difference_cells
from seu_bench.results.formats import notes
from seu_bench.results.leaderboard import Leaderboard
from seu_bench.results.record import Record
from seu_bench.results.record_metrics import METRICS
from seu_bench.results.report import paper
from seu_bench.results.report.draw_ranks import RankSection
from seu_bench.results.report.page import overview
from seu_bench.results.report.page.charts import Chart, charts_of
from seu_bench.results.report.page.downloads import board_files, download, table_files
from seu_bench.results.report.page.plotly_library import read_library
from seu_bench.results.report.rendering import RenderedFigure
from seu_bench.results.report.sections import Limits, Section
from seu_bench.results.scenarios import definition, with_scenario
from seu_bench.utils.text import printable

#: Of a table of runs.
RUNS: Final = ("rank", "run", "seed", "accuracy", "forgetting", "parameters", "training", "device", "began")
#: plotly.js adds its rules to the style of this id.
_PLOTLY_STYLE: Final = "/* Rules of plotly.js are added here. */"


@dataclass(frozen=True)
class PageContent:
    """What is on a page.

    Attributes:
        sections: the groups.
        ranks: comparisons over several of them.
        images: the figures, by name.
        outside: which records are in no group, and why.
        limits: how much is shown.
        is_interactive: whether charts answer to the pointer, for which a library is in the page.
    """

    sections: Sequence[Section]
    ranks: Sequence[RankSection]
    images: Mapping[str, RenderedFigure]
    outside: Sequence[str]
    limits: Limits
    is_interactive: bool = True

    def charts(self) -> dict[str, Chart]:
        """Charts by the names of the figures that they stand for."""
        found = {}
        for section in self.sections if self.is_interactive else ():
            points = paper.published_points(section.place)
            for kind, chart in charts_of(*section.charted, points).items():
                name = f"{section.board.name}-{kind}"
                if name in self.images:
                    found[name] = chart
        return found


def render_page(content: PageContent) -> str:
    """Render the page."""
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        loader=PackageLoader("seu_bench.results.report.page"),
    )
    environment.filters["printable"] = printable
    folder = files("seu_bench.results.report.page") / "templates"
    style, script, drawing = (
        (folder / name).read_text(encoding="utf-8") for name in ("report.css", "report.js", "charts.js")
    )
    charts = content.charts()
    library = read_library() if charts else None
    sections, images = content.sections, content.images
    ranked = [section.board for section in sections if section.board.unranked is None]  # these come first
    return environment.get_template("report.html.j2").render(
        title="Lifelong learning: results",
        version=__version__,
        policy=_policy(
            [style, *([_PLOTLY_STYLE] if library else [])], [script, *([drawing, library.text] if library else [])]
        ),
        # Our own files and the library's, which hold nothing of a record; as text they would be escaped.
        style=Markup(style),
        script=Markup(script),
        drawing=Markup(drawing),
        plotly_style=Markup(_PLOTLY_STYLE),
        library=library,
        charts=charts,
        sections=sections,
        ranks=content.ranks,
        headlines=[overview.headline_of(board) for board in ranked[: overview.MOST_GROUPS]],
        overviews=overview.overviews(ranked, [each.comparison for each in content.ranks]),
        ranked=ranked,
        titles=_titles([section.board for section in sections]),
        overview=overview,
        with_scenario=with_scenario,
        definition=definition,
        definitions=_definitions([section.board for section in sections]),
        latest=max((run.started for section in sections for _, run in section.runs), default=""),
        images=images,
        pdfs={name: download("PDF", f"{name}.pdf", image.pdf) for name, image in images.items()},
        outside=content.outside,
        limits=content.limits,
        # What the template calls for each section.
        notes_on=lambda board: list(notes(board)),
        paper=paper,
        beside_best=_beside_best,
        meaning=MEANING,
        run_headings=RUNS,
        run_cells=_run_cells,
        board_files=board_files,
        table_files=table_files,
        zip=zip,
    )


def _policy(styles: Sequence[str], scripts: Sequence[str]) -> str:
    """What the page may load: pictures within itself, these styles and scripts, and nothing else."""
    style_hashes, script_hashes = (" ".join(f"'{_hash(text)}'" for text in texts) for texts in (styles, scripts))
    return (
        f"default-src 'none'; img-src data:; style-src {style_hashes}; script-src {script_hashes}; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _titles(boards: Sequence[Leaderboard]) -> list[str]:
    """A title for each group, no two alike: of those that differ in nothing else, the data is named."""
    plain = [printable(board.title) for board in boards]
    named = [
        f"{title}, data {printable(board.data_fingerprint)[:8]}" if plain.count(title) > 1 else title
        for title, board in zip(plain, boards, strict=True)
    ]
    return [
        f"{title} ({number + 1})" if (number := named[:place].count(title)) else title
        for place, title in enumerate(named)
    ]


def _definitions(boards: Sequence[Leaderboard]) -> list[tuple[str, str]]:
    """Heading and definition of each column of the first leaderboard, then of those that only others have."""
    columns = {name: (board.heading(name), it.summary) for board in boards[::-1] for name, it in board.columns.items()}
    names = dict.fromkeys(name for board in boards for name in board.columns)
    return [columns[name] for name in names]


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
    return f"{best.rank} {printable(best.configuration)}", [("configuration", "seeds", *HEADINGS), *rows]


def _run_cells(runs: Sequence[tuple[int | None, Record]]) -> list[list[str]]:
    shown = ("acc", "forgetting", "params_total", "train_seconds")
    return [
        [str(rank or "-"), run.run_id, str(run.seed)]
        + [METRICS[name].format(run.metrics.get(name)) for name in shown]
        + [printable(run.environment.device), printable(run.started)]
        for rank, run in runs
    ]
