"""The page: everything that a report shows, in one HTML file that loads nothing. All texts are escaped by Jinja2."""

from __future__ import annotations

import base64
import csv
import gzip
import hashlib
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from seu_bench._version import __version__
from seu_bench.results.comparison import HEADINGS, BenchmarkComparison, difference_cells
from seu_bench.results.formats import notes, plain_table, to_csv, to_latex
from seu_bench.results.leaderboard import FRONT, MARKS, REFERENCE, TUNED, Leaderboard, Row, mean_and_deviation
from seu_bench.results.record_metrics import METRICS
from seu_bench.results.report.charts import SIZES, Chart
from seu_bench.results.report.plotting import plotly_figure
from seu_bench.results.scenarios import with_scenario
from seu_bench.utils.text import printable, spreadsheet_cell

#: Rows of a leaderboard, and names of a list.
_MOST_ROWS, _MOST_NAMES = 1000, 4


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


class Contents(NamedTuple):
    """What a report shows, which records and figures it does not, and the charts that are drawn, by name."""

    sections: Sequence[Section]
    ranks: Sequence[RankSection]
    outside: Sequence[str]
    charts: Mapping[str, Chart]


class Table(NamedTuple):
    """A table of text, not escaped: the name of its files, a label, headings, rows, and the board that it is of."""

    name: str
    label: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    board: Leaderboard | None = None

    def files(self) -> dict[str, str]:
        """Return its content as CSV and LaTeX, by the endings of files."""
        if self.board is not None:
            return {"csv": to_csv([self.board]), "tex": to_latex(self.board)}
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


def render_page(contents: Contents) -> str:
    """Render the page of a report."""
    loader = PackageLoader("seu_bench.results.report")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, loader=loader)
    environment.filters["printable"] = printable
    folder = files("seu_bench.results.report") / "templates"
    style, script = ((folder / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    plotly = files("plotly") / "package_data" / "plotly.min.js"
    library = plotly.read_text(encoding="utf-8") if contents.charts else ""
    boards = [section.board for section in contents.sections]
    ranked = [board for board in boards if board.unranked is None]
    tables = [summary_table(ranked), *overview_tables(ranked, [each.comparison for each in contents.ranks])]
    # Our own files and the library's, which hold nothing of a record, alone may run.
    hashes = " ".join(f"'sha256-{_base64(hashlib.sha256(text.encode()).digest())}'" for text in (script, library))
    return environment.get_template("report.html.j2").render(
        version=__version__,
        hashes=Markup(hashes),
        style=Markup(style),
        script=Markup(script),
        library=_base64(gzip.compress(library.encode(), 9, mtime=0)) if library else "",
        contents=contents,
        titles=_titles(boards),
        tables=tables if ranked else [],
        definitions={b.heading(name): it.summary for b in reversed(boards) for name, it in b.columns.items()},
        most=_MOST_ROWS,
        Table=Table,
        board_table=_board_table,
        notes=lambda board: list(notes(board)),
        difference_table=difference_table,
        data=lambda text: f"data:text/plain;charset=utf-8;base64,{_base64(text.encode())}",
        plotly=lambda chart: Markup(json.dumps(plotly_figure(chart)).replace("<", "\\u003c")),
    )


def summary_table(boards: Sequence[Leaderboard]) -> Table:
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
        values = [_value(best, name) for name in metrics] if best else ["-"] * len(metrics)
        rows.append(
            (
                board.title,
                _names([best] if best else []),
                *values,
                str(best.seeds) if best else "-",
                _names(alike),
                _names(untested),
                _names([min(front)[2]] if front else []),
                "; ".join(f"{row.configuration} {_value(row, 'acc')}" for row in board.references[:_MOST_NAMES]) or "-",
            )
        )
    columns = [METRICS[name].column or name for name in metrics]
    more = ["not significantly worse", "too few seeds to say", "smallest on the front", "references (%)"]
    heads = ["benchmark", "most accurate", *columns, "seeds", *more]
    return Table("summary", "The most accurate of each benchmark", heads, rows)


def overview_tables(boards: Sequence[Leaderboard], comparisons: Sequence[BenchmarkComparison]) -> list[Table]:
    """Tabulate the accuracy of all configurations on all benchmarks of each protocol and scenario that has several.

    A row has the name that comparisons over benchmarks give it, or else its label; references come last.
    """
    tables: list[Table] = []
    for protocol, scenario in dict.fromkeys((board.protocol, board.scenario) for board in boards):
        own = [board for board in boards if (board.protocol, board.scenario) == (protocol, scenario)]
        if len(own) < 2:
            continue
        names: dict[Row, str] = {}
        ranks: dict[tuple[bool, str], float] = {}
        for found in comparisons:
            if (found.protocol, found.scenario) == (protocol, scenario):
                names = {row: name for name, rows in found.rows.items() for row in rows}
                ranks = {(False, row.configuration): row.mean for row in found.ranks.rows}
        lines: dict[tuple[bool, str], list[str]] = {}
        for column, board in enumerate(own):
            for row, standing in zip(board.rows, board.standings("acc"), strict=True):
                mark = (FRONT if row.on_front else REFERENCE if row.reference else "") + MARKS.get(standing, "")
                key = row.reference is not None, names.get(row, row.configuration)
                lines.setdefault(key, ["-"] * len(own))[column] = mark + _value(row, "acc")
        order = sorted(lines, key=lambda key: (key[0], ranks.get(key, math.inf), lines[key].count("-"), key[1]))
        rows = [(key[1], *lines[key], f"{ranks[key]:.2f}" if key in ranks else "-") for key in order]
        label = f"Accuracy (%) of all configurations, {with_scenario(f'protocol {protocol}', scenario)}"
        tables.append(
            Table(f"overview-{len(tables)}", label, ["configuration", *_titles(own), "average rank"], rows[:_MOST_ROWS])
        )
    return tables


def difference_table(board: Leaderboard) -> Table | None:
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
