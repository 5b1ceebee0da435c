"""The report: one HTML page, made from records, that holds all and loads nothing; figures as files where asked for."""

from __future__ import annotations

import base64
import gc
import gzip
import hashlib
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from seu_bench._version import __version__
from seu_bench.config.commands import command
from seu_bench.config.streams import title_of
from seu_bench.errors import OptionError, ResultsError
from seu_bench.results.building import read_leaderboards
from seu_bench.results.comparison import HEADINGS, BenchmarkComparison, compare_over_benchmarks, difference_cells
from seu_bench.results.formats import notes, to_bibtex, to_csv, to_latex, usual_columns
from seu_bench.results.leaderboard import MARKS, REFERENCE, TUNED, Leaderboard, Row, mean_and_deviation, not_dominated
from seu_bench.results.metric import UNITS, Metric
from seu_bench.results.names import Installed, display_benchmark
from seu_bench.results.record_files import require_records
from seu_bench.results.record_metrics import METRICS
from seu_bench.results.report import charts
from seu_bench.results.report.charts import GREY, SIZES, Chart, Configuration, style, styles_of
from seu_bench.results.report.plotting import plotly_figure
from seu_bench.utils.files import check_output, refuse_link, write_atomic
from seu_bench.utils.locks import folder_lock
from seu_bench.utils.progress import track
from seu_bench.utils.text import printable

if TYPE_CHECKING:
    from seu_bench.results.report.drawing import Layout

#: A longer stream is no picture any more, and its matrices are larger than what a report should hold.
MOST_TASKS: Final = 100
#: Rows of a leaderboard, and names of a list.
_MOST_ROWS, _MOST_NAMES = 1000, 3
#: Comparisons over several benchmarks and their charts, by the names of these.
Ranks: TypeAlias = dict[str, tuple[BenchmarkComparison, Chart]]


@dataclass(frozen=True)
class ReportFiles:
    """The HTML file, the PDF, SVG and PNG files if any, what is not shown and why, and the number of groups."""

    page: Path
    figures: tuple[Path, ...]
    outside: tuple[str, ...]
    groups: int


class Section(NamedTuple):
    """A leaderboard, the charts of it by name, and what is not drawn and why."""

    board: Leaderboard
    charts: Mapping[str, Chart]
    notes: Sequence[str]


class Table(NamedTuple):
    """A table of text, not escaped, with the board that it is of and the headings shown at first (empty: all)."""

    name: str
    label: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    board: Leaderboard | None = None
    usual: Collection[str] = ()


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
        output: the page, ``<results>/report.html`` by default.
        benchmark, protocol: only groups of these.
        metrics: those known, e.g. of the plugins installed; a column is shown where a record has its metric.
        top: configurations drawn in each group; 0: no figure is drawn.
        layout: width and fonts of figures as PDF, SVG and PNG, e.g. of a paper's column, in the folder ``figures``
            beside the page; ``None``: the page alone, with interactive charts.
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
        remedy = f"call it {page.stem}.html; --figures writes figures beside it"
        raise OptionError("a report is an HTML page, and this is not called one", where=str(page), remedy=remedy)
    require_records(results)
    made = read_leaderboards(results, metrics, installed)
    boards = [it for it in made.boards if benchmark in (None, it.benchmark) and protocol in (None, it.protocol)]
    boards = [board.with_display_names() for board in boards]
    outside = made.excluded(benchmark)
    if not boards:
        unranked = command("leaderboard", "--unranked", results=results)
        remedy = "\n  ".join([f"{unranked} shows finished runs that are never ranked", *outside])
        raise ResultsError("no record can be reported", where=str(results), remedy=remedy)
    ranks: Ranks = {}
    for found in compare_over_benchmarks(boards, metrics=metrics):
        place = title_of(found.protocol, found.scenario)
        ranks[f"over-benchmarks-{place}-average-ranks"] = found, charts.average_ranks(found, metrics, installed or {})
    sections = [Section(board, *_charts(board, top) if top else ({}, [])) for board in boards]
    figures = {name: chart for name, (_, chart) in ranks.items() if top}
    for section in sections:
        figures |= section.charts
    paths = [] if layout is None else _write_figures(figures, page.parent / "figures", layout)
    write_atomic(page, _render(sections, ranks, outside, is_drawn=bool(figures), has_files=bool(paths)))
    return ReportFiles(page, tuple(paths), tuple(outside), len(boards))


def _write_figures(figures: Mapping[str, Chart], folder: Path, layout: Layout) -> list[Path]:
    from seu_bench.results.report.drawing import render  # matplotlib, which the page does without

    refuse_link(folder, "remove it; figures can be made again at any time")
    paths: list[Path] = []
    with folder_lock(folder):
        for name, chart in track(list(figures.items()), "drawing figures"):
            for form, content in render(chart, layout).items():
                paths.append(folder / f"{name}.{form}")
                write_atomic(paths[-1], content, durable=False)  # it can be made again at any time
            gc.collect(0)  # of the figure alone: the command pauses collection
    return paths


def accuracy_of(board: Leaderboard) -> str:
    """Return the accuracy that the field reports: incremental in class-incremental streams, else the final one."""
    return "avg_incremental_acc" if board.scenario == "class" and "avg_incremental_acc" in board.columns else "acc"


def _charts(board: Leaderboard, most: int) -> tuple[dict[str, Chart], list[str]]:
    """Make the charts of a board by name, and say what is not drawn; of equal references the most accurate is."""
    first = sorted({row.record.strategy: row for row in reversed(board.learners)}.values(), key=attrgetter("number"))
    learners = sorted([*dict.fromkeys([*first, *board.learners])][:most], key=attrgetter("number"))
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
    references = [each for each in shown if each.reference is not None]
    found = charts.compare(drawn, references, accuracy_of(board)) if drawn else []
    return {f"{board.name}-{chart.kind}": chart for chart in found}, notes


def _render(sections: Sequence[Section], ranks: Ranks, outside: Sequence[str], **said: bool) -> str:
    """The page; all texts are escaped by Jinja2."""
    loader = PackageLoader("seu_bench.results.report")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, loader=loader)
    environment.filters["printable"] = printable
    folder = files("seu_bench.results.report") / "templates"
    css, script = ((folder / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    plotly = files("plotly") / "package_data" / "plotly.min.js"
    library = plotly.read_text(encoding="utf-8") if said["is_drawn"] else ""
    boards, titles = [section.board for section in sections], _titles([section.board for section in sections])
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
        **said,
        titles=titles,
        summary=_summary_table(dict(zip(titles, boards, strict=True))),
        definitions={b.heading(name): it.summary for b in reversed(boards) for name, it in b.columns.items()},
        most=_MOST_ROWS,
        Table=Table,
        board_table=_board_table,
        size_table=_size_table,
        notes=lambda board: list(notes(board)),
        difference_table=_difference_table,
        files=lambda it: {"csv": to_csv([it]), "tex": to_latex(it), "bib": to_bibtex([it])},
        data=lambda text: f"data:text/plain;charset=utf-8;base64,{_base64(text.encode())}",
        plotly=lambda chart: Markup(json.dumps(plotly_figure(chart)).replace("<", "\\u003c")),
    )


def _summary_table(boards: Mapping[str, Leaderboard]) -> Table:
    """Say of each leaderboard what is most accurate, its size, and what is not told from it."""
    rows = []
    for title, board in boards.items():
        best, alike = _most_accurate(board)
        if best is not None:
            values = [_value(best, name) for name in (accuracy_of(board), *SIZES)]
            rows.append((title, _names([best]), *values, str(best.seeds), alike))
    columns = [METRICS[size].column or size for size in SIZES]
    heads = ("benchmark", "most accurate", "accuracy (%)", *columns, "seeds", "not significantly different")
    return Table("summary", "The most accurate of each benchmark", heads, rows)


def _size_table(board: Leaderboard) -> Table:
    accuracy, size = accuracy_of(board), METRICS[board.size]
    rows = [
        (f"up to {most:.3g}", (REFERENCE if best.reference else "") + _names([best]), _value(best, accuracy), alike)
        for best, most, alike in _within_sizes(board)
    ]
    heads = (size.column or "", "most accurate", METRICS[accuracy].column or "", "not significantly different")
    return Table(f"{board.name}-sizes", f"Which method for which {SIZES[board.size]}", heads, rows)


def _within_sizes(board: Leaderboard) -> list[tuple[Row, float, str]]:
    """Find what is most accurate within each size at which that changes, that size, and what is not told from it;
    references, where no row that is as small is as accurate."""
    axes, found = (accuracy_of(board), board.size), dict[Row, tuple[Row, float, str]]()
    best: Row | None
    for row in sorted(not_dominated(board.learners, axes), key=lambda row: row.mean(board.size) or 0.0):
        most = _round_up(row.mean(board.size) or 0.0)
        within = tuple(row for row in board.learners if (row.mean(board.size) or math.inf) <= most)
        best, alike = _most_accurate(replace(board, rows=within))
        if best is not None and best not in found:
            found[best] = best, most, alike
    for row in not_dominated(board.rows, axes):
        if row.reference is not None:
            found[row] = row, _round_up(row.mean(board.size) or 0.0), "-"
    factor = UNITS[METRICS[board.size].unit].factor
    return [(row, most * factor, alike) for row, most, alike in sorted(found.values(), key=itemgetter(1))]


def _round_up(size: float) -> float:
    """Round up to two digits."""
    unit = 10.0 ** (math.floor(math.log10(max(size, 1.0))) - 1)
    return math.ceil(size / unit) * unit


def _most_accurate(board: Leaderboard) -> tuple[Row | None, str]:
    """Find the most accurate row, and the names of those that are not told from it."""
    best, others = board.beside_best(accuracy := accuracy_of(board))
    rows = sorted(others, key=lambda row: -(row.mean(accuracy) or 0.0))
    alike = [(mark, [row for row in rows if others[row].verdict == verdict]) for verdict, mark in MARKS.items()]
    return best, ", ".join(mark + _names(there) for mark, there in alike if there) or "-"


def _difference_table(board: Leaderboard) -> Table | None:
    """Compare accuracies with the best; ``None``: there is nothing to compare."""
    best, others = board.beside_best("acc")
    rows = [(row.configuration, str(it.pairs), *difference_cells(it, METRICS["acc"])) for row, it in others.items()]
    if best is None or not rows:
        return None
    label = f"Accuracy beside that of {_names([best])}, in points"
    return Table(f"{board.name}-differences", label, ("configuration", "seeds", *HEADINGS), rows)


def _board_table(board: Leaderboard) -> Table:
    heads = ("rank", "configuration", "seeds", *map(board.heading, board.columns))
    usual = {*heads[:3], *map(board.heading, [accuracy_of(board), *usual_columns(board)])}
    return Table(board.name, "Leaderboard", heads, board.cells(most=_MOST_ROWS), board, usual)


def _titles(boards: Sequence[Leaderboard]) -> list[str]:
    """Title each board; those that differ in nothing that a title says have the names of their files, too."""
    names = [display_benchmark(board.rows[0].record, board.installed) for board in boards]
    titles = [f"{name}, protocol {board.protocol}" for name, board in zip(names, boards, strict=True)]
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
