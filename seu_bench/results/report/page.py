"""The report: records are read, figures drawn and written, then one HTML page that holds all and loads nothing."""

from __future__ import annotations

import base64
import csv
import gc
import gzip
import hashlib
import io
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from seu_bench._version import __version__
from seu_bench.config.commands import command
from seu_bench.errors import OptionError, ResultsError
from seu_bench.results.building import read_leaderboards
from seu_bench.results.comparison import HEADINGS, BenchmarkComparison, compare_over_benchmarks, difference_cells
from seu_bench.results.formats import notes, plain_table, to_bibtex, to_csv, to_latex
from seu_bench.results.leaderboard import TUNED, Leaderboard, Row, mean_and_deviation
from seu_bench.results.metric import Metric
from seu_bench.results.names import Installed
from seu_bench.results.record_files import require_records
from seu_bench.results.record_metrics import METRICS
from seu_bench.results.report import charts
from seu_bench.results.report.charts import GREY, SIZES, Chart, Configuration, style, styles_of
from seu_bench.results.report.drawing import Layout, render
from seu_bench.results.report.plotting import plotly_figure
from seu_bench.utils.files import check_output, refuse_link, write_atomic
from seu_bench.utils.locks import folder_lock
from seu_bench.utils.progress import track
from seu_bench.utils.text import printable, spreadsheet_cell

#: A longer stream is no picture any more, and its matrices are larger than what a report should hold.
MOST_TASKS: Final = 100
#: Rows of a leaderboard, names of a list, and groups that have figures: those with the most records.
_MOST_ROWS, _MOST_NAMES, _MOST_GROUPS = 1000, 4, 10


@dataclass(frozen=True)
class ReportFiles:
    """The HTML file, the PDF, SVG and PNG files, what is not shown and why, and the number of groups."""

    page: Path
    figures: tuple[Path, ...]
    outside: tuple[str, ...]
    groups: int


class Section(NamedTuple):
    """A leaderboard, the charts of it by name, and what is not drawn and why."""

    board: Leaderboard
    charts: Mapping[str, Chart]
    notes: Sequence[str]


class RankSection(NamedTuple):
    """A comparison over several benchmarks, its chart, and the name of that."""

    name: str
    comparison: BenchmarkComparison
    chart: Chart


class Table(NamedTuple):
    """A table of text, not escaped: the name of its files, a label, headings, rows, and the board that it is of."""

    name: str
    label: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    board: Leaderboard | None = None

    def files(self) -> dict[str, str]:
        """Return its content as CSV and LaTeX, by the endings of files, and the BibTeX that a leaderboard cites."""
        if self.board is not None:
            return {"csv": to_csv([self.board]), "tex": to_latex(self.board), "bib": to_bibtex([self.board])}
        return {"csv": self._csv(), "tex": plain_table(self.headings, self.rows)}

    def _csv(self) -> str:
        """CSV with means and deviations in columns of their own; ``-`` is blank, and no cell is a formula."""
        columns: list[list[object]] = []
        for place, heading in enumerate(self.headings):
            parts = [row[place].partition(" ± ") for row in self.rows]
            columns.append([spreadsheet_cell(heading), *(_plain(mean) for mean, _, _ in parts)])
            if any(sign for _, sign, _ in parts):
                columns.append([f"{heading} deviation", *(_plain(deviation) for _, _, deviation in parts)])
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(zip(*columns, strict=True))
        return text.getvalue()


def _plain(cell: str) -> object:
    if cell == "-":
        return ""
    return cell.replace(",", "") if re.fullmatch(r"[-+]?[0-9][0-9.,]*", cell) else spreadsheet_cell(cell)


def write_report(
    results: Path,
    output: Path | None = None,
    benchmark: str | None = None,
    protocol: str | None = None,
    metrics: Mapping[str, Metric] = METRICS,
    *,
    top: int = 8,
    layout: Layout | None = None,
    installed: Installed | None = None,
) -> ReportFiles:
    """Make the report of a results folder anew.

    Args:
        results: the results folder.
        output: the page, ``<results>/report.html`` by default; figures go to the folder ``figures`` beside it.
        benchmark, protocol: only groups of these.
        metrics: those known, e.g. of the plugins installed; a column is shown where a record has its metric.
        top: configurations drawn in each group; 0: no figure is drawn.
        layout: width and fonts of the figures, e.g. of a paper's column.
        installed: as of :func:`~seu_bench.results.read_leaderboards`.

    Raises:
        ResultsError: there are no records, none that can be reported, or nothing can be written there.
        OptionError: ``output`` ends like something else than a page.

    Example:
        >>> write_report(Path("results"), top=4).page  # doctest: +SKIP
        PosixPath('results/report.html')
    """
    page = output or results / "report.html"
    check_output(page)
    if page.suffix.lower() not in (".html", ".htm"):
        remedy = f"call it {page.stem}.html; figures are written beside it"
        raise OptionError("a report is an HTML page, and this is not called one", where=str(page), remedy=remedy)
    folder = page.parent / "figures"
    refuse_link(folder, "remove it; figures can be made again at any time")
    require_records(results)
    made = read_leaderboards(results, metrics, installed)
    boards = [it for it in made.boards if benchmark in (None, it.benchmark) and protocol in (None, it.protocol)]
    outside = made.excluded(benchmark)
    if not boards:
        shown = command("leaderboard", "--unranked", results=results)
        remedy = "\n  ".join([f"{shown} shows finished runs that are never ranked", *outside])
        raise ResultsError("no record can be reported", where=str(results), remedy=remedy)
    ranks = []
    for found in compare_over_benchmarks(boards, metrics=metrics):
        scenario = "" if found.scenario == "task" else f"-{found.scenario}"
        name = f"over-benchmarks-{found.protocol}{scenario}-average-ranks"
        ranks.append(RankSection(name, found, charts.average_ranks(found, metrics)))
    drawn = sorted(boards, key=lambda board: -board.records)[: _MOST_GROUPS if top else 0]
    if 0 < len(drawn) < len(boards):
        outside.append(f"figures of {len(boards) - len(drawn)} groups with fewer records (choose with --benchmark)")
    sections = [Section(board, *(_charts(board, top) if board in drawn else ({}, []))) for board in boards]
    figures = {each.name: each.chart for each in ranks} if top else {}
    for section in sections:
        figures |= section.charts
    paths: list[Path] = []
    with folder_lock(folder), ExitStack() as at_end:
        gc.freeze()  # all that was read, in which each collection would look for garbage
        at_end.callback(gc.unfreeze)
        for name, chart in track(list(figures.items()), "drawing figures"):
            for form, content in render(chart, layout or Layout()).items():
                paths.append(folder / f"{name}.{form}")
                write_atomic(paths[-1], content, durable=False)  # it can be made again at any time
            gc.collect()  # the command pauses it
        write_atomic(page, _render(sections, ranks, outside, is_drawn=bool(figures)))
    return ReportFiles(page, tuple(paths), tuple(outside), len(boards))


def choose(strategies: Sequence[str], most: int) -> list[int]:
    """Choose rows to draw: the best of each strategy, then the next best."""
    best = [place for place, strategy in enumerate(strategies) if strategy not in strategies[:place]]
    return sorted(list(dict.fromkeys([*best, *range(len(strategies))]))[:most])


def _charts(board: Leaderboard, most: int) -> tuple[dict[str, Chart], list[str]]:
    """Make the charts of a board by name, and say what is not drawn; of equal references the most accurate is."""
    learners = [board.learners[place] for place in choose([row.record.strategy for row in board.learners], most)]
    best = {row.reference: row for row in sorted(board.references, key=lambda row: row.mean("acc") or 0.0)}
    looks = [*styles_of([row.record.strategy for row in learners]), *(style(place, GREY) for place in range(len(best)))]
    every = [
        Configuration(printable(row.configuration), tuple(row.runs.values()), look)
        for row, look in zip([*learners, *best.values()], looks, strict=True)
    ]
    shown = [each for each in every if 0 < each.tasks <= MOST_TASKS]
    drawn = [each for each in shown if each.reference is None]
    notes = [f"streams of more than {MOST_TASKS} tasks are not drawn"] if len(shown) < len(every) else []
    if len(board.learners) > len(learners):
        which = "the best of each strategy, then the next best (--top changes how many)"
        notes.append(f"{len(drawn)} of {len(board.learners)} configurations are drawn: {which}")
    found = charts.compare(drawn, [each for each in shown if each.reference is not None]) if drawn else []
    return {f"{board.name}-{chart.kind}": chart for chart in found}, notes


def _render(
    sections: Sequence[Section], ranks: Sequence[RankSection], outside: Sequence[str], *, is_drawn: bool
) -> str:
    """The page; all texts are escaped by Jinja2."""
    loader = PackageLoader("seu_bench.results.report")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, loader=loader)
    environment.filters["printable"] = printable
    folder = files("seu_bench.results.report") / "templates"
    css, script = ((folder / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    plotly = files("plotly") / "package_data" / "plotly.min.js"
    library = plotly.read_text(encoding="utf-8") if is_drawn else ""
    boards = [section.board for section in sections]
    # Our own files and the library's, which hold nothing of a record, alone may run.
    hashes = " ".join(f"'sha256-{_base64(hashlib.sha256(text.encode()).digest())}'" for text in (script, library))
    return environment.get_template("report.html.j2").render(
        version=__version__,
        hashes=Markup(hashes),
        style=Markup(css),
        script=Markup(script),
        library=_base64(gzip.compress(library.encode(), 9, mtime=0)) if library else "",
        sections=sections,
        ranks=ranks,
        outside=outside,
        is_drawn=is_drawn,
        titles=_titles(boards),
        summary=_summary_table(boards),
        definitions={b.heading(name): it.summary for b in reversed(boards) for name, it in b.columns.items()},
        most=_MOST_ROWS,
        Table=Table,
        board_table=_board_table,
        notes=lambda board: list(notes(board)),
        difference_table=_difference_table,
        data=lambda text: f"data:text/plain;charset=utf-8;base64,{_base64(text.encode())}",
        plotly=lambda chart: Markup(json.dumps(plotly_figure(chart)).replace("<", "\\u003c")),
    )


def _summary_table(boards: Sequence[Leaderboard]) -> Table:
    """Say of each leaderboard what is most accurate, its cost, and what is not worse or smaller."""
    rows = []
    metrics = ("acc", "forgetting", *SIZES)
    for board in boards:
        best, rest = board.beside_best("acc")
        by_accuracy = sorted(rest, key=lambda row: -(row.mean("acc") or 0.0))
        alike, untested = (
            [row for row in by_accuracy if rest[row].verdict == verdict]
            for verdict in ("not significant", "too few seeds")
        )
        front = [(size, row.number, row) for row in board.rows if row.on_front and (size := row.mean(board.size))]
        references = [f"{row.configuration} {_value(row, 'acc')}" for row in board.references[:_MOST_NAMES]]
        costs = [_value(best, name) if best else "-" for name in metrics]
        found = [_names([best] if best else []), *costs, str(best.seeds) if best else "-", _names(alike)]
        smallest = _names([min(front)[2]] if front else [])
        rows.append((board.title, *found, _names(untested), smallest, "; ".join(references) or "-"))
    columns = [METRICS[name].column or name for name in metrics]
    more = ["not significantly worse", "too few seeds to say", "smallest on the front", "references (%)"]
    heads = ["benchmark", "most accurate", *columns, "seeds", *more]
    return Table("summary", "The most accurate of each benchmark", heads, rows)


def _difference_table(board: Leaderboard) -> Table | None:
    """Compare accuracies with the best; ``None``: there is nothing to compare."""
    best, others = board.beside_best("acc")
    rows = [
        (row.configuration, str(found.pairs), *difference_cells(found, METRICS["acc"])) for row, found in others.items()
    ]
    if best is None or not rows:
        return None
    label = f"Accuracy beside that of {_names([best])}, in points"
    return Table(f"{board.name}-differences", label, ("configuration", "seeds", *HEADINGS), rows)


def _board_table(board: Leaderboard) -> Table:
    heads = ("rank", "configuration", "seeds", *map(board.heading, board.columns))
    return Table(board.name, "Leaderboard", heads, board.cells(most=_MOST_ROWS), board)


def _titles(boards: Sequence[Leaderboard]) -> list[str]:
    """Title each board; those that differ in nothing but the data have the names of their files, too."""
    titles = [board.title for board in boards]
    pairs = zip(titles, boards, strict=True)
    return [f"{title} ({board.name})" if titles.count(title) > 1 else title for title, board in pairs]


def _value(row: Row, metric: str) -> str:
    return mean_and_deviation(METRICS[metric], row.summary(metric))


def _names(rows: Sequence[Row]) -> str:
    more = f" and {len(rows) - _MOST_NAMES} more" if len(rows) > _MOST_NAMES else ""
    labels = [row.configuration + (TUNED if row.tunings else "") for row in rows[:_MOST_NAMES]]
    return ", ".join(labels) + more if rows else "-"


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
