"""A leaderboard as a table of LaTeX, with the rules of ``booktabs``; whatever comes from records is escaped."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from seu_bench.results.leaderboard.boards import COMPARED, Leaderboard, Row, Standing
from seu_bench.results.leaderboard.markdown import stated
from seu_bench.results.leaderboard.ordering import SIZES
from seu_bench.results.metric import Metric
from seu_bench.results.scenarios import definition
from seu_bench.results.statistics.differences import FEWEST_PAIRS
from seu_bench.results.statistics.power import LEVEL
from seu_bench.results.statistics.samples import SampleSummary
from seu_bench.utils.text import escape_latex, printable

#: Letters of a configuration that a line of a page has room for beside numbers; longer ones are broken in a column of
#: this share of the line.
_WIDEST: Final = 24
_WIDTH: Final = 0.28
#: Marks of rows on the front, of references and of tuned rows.
_FRONT: Final = r"$\bullet$~"
_REFERENCE: Final = r"$\circ$"
_TUNED: Final = r"$^{\dagger}$"
_FEW_SEEDS: Final = r"$^{\ddagger}$"


def usual_columns(board: Leaderboard) -> list[str]:
    """Return the columns that a page has room for, as far as they are there: accuracy, forgetting, size and compute."""
    return [name for name in ("acc", "forgetting", board.size, "train_flops") if name in board.columns]


def to_latex(board: Leaderboard, columns: Sequence[str] | None = None) -> str:
    """Return a leaderboard as a floating table of LaTeX with caption, label and notes.

    Args:
        board: all rows of it are in the table, references below a rule.
        columns: ids of metrics among ``board.columns``; :func:`usual_columns` by default.

    Returns:
        Lines to ``\\input`` in a document that loads ``booktabs``. The best mean of a compared column is bold, a mean
        that does not differ from it significantly is underlined.

    Example:
        ``Path("table.tex").write_text(to_latex(read_leaderboards(Path("results")).boards[0]))``
    """
    names = list(columns) if columns is not None else usual_columns(board)
    rows = dict(zip(board.rows, _cells(board, names), strict=True))
    learners = [texts for row, texts in rows.items() if row.reference is None]
    references = [texts for row, texts in rows.items() if row.reference is not None]
    counts = [] if _seeds(board) else ["seeds"]
    headings = ["rank", "configuration", *counts, *[_heading(board.heading(name)) for name in names]]
    configuration = rf"p{{{_WIDTH}\linewidth}}" if _is_wide(board) else "l"
    numbers = "r" * (len(counts) + len(names))
    lines = [
        f"% {printable(board.title)}; data {printable(board.data_fingerprint)}",
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        r"  \centering\footnotesize\setlength{\tabcolsep}{3pt}",
        rf"  \caption{{{_caption(board)}}}",
        rf"  \label{{tab:{re.sub('[^A-Za-z0-9-]', '-', board.name)}}}",
        *[f"  {line}" for line in tabular(headings, [learners, references], f"r{configuration}{numbers}")],
        r"  \par\smallskip",
        rf"  \begin{{minipage}}{{\linewidth}}\footnotesize {_notes(board, names)}\end{{minipage}}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def tabular(headings: Sequence[str], sections: Sequence[Sequence[Sequence[str]]], alignment: str) -> list[str]:
    """Return the lines of a ``tabular`` with the rules of ``booktabs``.

    Args:
        headings: of the columns, as LaTeX.
        sections: rows of cells, as LaTeX (:func:`~seu_bench.utils.text.escape_latex`), with a rule between sections;
            empty ones are left out.
        alignment: the columns as LaTeX wants them, e.g. ``lrr``.
    """
    lines = [rf"\begin{{tabular}}{{{alignment}}}", r"\toprule", _line(headings)]
    for section in filter(None, sections):
        lines += [r"\midrule", *map(_line, section)]
    return [*lines, r"\bottomrule", r"\end{tabular}"]


def plain_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of plain text as a ``tabular``: the first column to the left, the others to the right."""
    body = [[escape_latex(cell) for cell in row] for row in rows]
    alignment = "l" + "r" * (len(headings) - 1)
    return "\n".join(tabular([escape_latex(heading) for heading in headings], [body], alignment)) + "\n"


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _cells(board: Leaderboard, names: Sequence[str]) -> list[list[str]]:
    """Rows of LaTeX: rank, configuration, seeds, mean and standard deviation of the metrics."""
    counts = [
        [] if _seeds(board) else [f"{row.seeds}{_FEW_SEEDS if board.lacks_seeds(row) else ''}"] for row in board.rows
    ]
    ragged = r"\raggedright " if _is_wide(board) else ""
    shown = [[_rank(row), ragged + _configuration(row), *count] for row, count in zip(board.rows, counts, strict=True)]
    for name in names:
        standings: Sequence[Standing | None] = board.standings(name) if name in COMPARED else [None] * len(board.rows)
        for texts, row, standing in zip(shown, board.rows, standings, strict=True):
            texts.append(_value(board.columns[name], row.summary(name), standing))
    return shown


def _rank(row: Row) -> str:
    return _REFERENCE if row.reference is not None else f"{_FRONT if row.on_front else ''}{row.rank or '--'}"


def _configuration(row: Row) -> str:
    return escape_latex(row.configuration) + (_TUNED if row.tunings else "")


def _value(metric: Metric, found: SampleSummary | None, standing: Standing | None) -> str:
    if found is None:
        return "--"
    # In formulas a comma would be followed by a blank.
    mean, std = (None if it is None else metric.format_cell(it).replace(",", "{,}") for it in (found.mean, found.std))
    marked = {
        "best": rf"\mathbf{{{mean}}}",
        "not significant": rf"\underline{{{mean}}}",
        "too few seeds": f"{mean}^{{?}}",
    }
    text = marked.get(str(standing), str(mean))
    return f"${text}$" if std is None else rf"${text} \pm {std}$"


def _is_wide(board: Leaderboard) -> bool:
    """Whether a configuration has not room on one line."""
    return any(len(row.configuration) > _WIDEST for row in board.rows)


def _seeds(board: Leaderboard) -> int | None:
    """The number of seeds of every row; ``None`` where seeds differ, which a column must say then."""
    return None if len({frozenset(row.runs) for row in board.rows}) != 1 else board.rows[0].seeds


def _heading(text: str) -> str:
    """A heading, its unit on a line of its own."""
    name, bracket, unit = text.rpartition(" (")
    if not bracket:
        return escape_latex(text)
    return rf"\shortstack[r]{{{escape_latex(name)} \\ ({escape_latex(unit)}}}"


def _caption(board: Leaderboard) -> str:
    seeds, title = _seeds(board), escape_latex(board.title)
    title = ". ".join([title, *(escape_latex(text[0].upper() + text[1:]) for text in board.settings)])
    if seeds == 1 or not board.rows:
        return f"{title}. One seed." if board.rows else f"{title}."
    return rf"{title}. Mean $\pm$ standard deviation over {'' if seeds is None else f'{seeds} '}seeds."


def _notes(board: Leaderboard, names: Collection[str]) -> str:
    """What the scenario, order and marks mean, as far as they are in the table."""
    return " ".join(_sentences(board, names))


def _sentences(board: Leaderboard, names: Collection[str]) -> Iterator[str]:
    if board.scenario != "task":
        yield f"{escape_latex(definition(board.scenario).capitalize())}."
    if board.unranked is not None:
        yield "Not ranked; rows are in the order of accuracy."
    if any(row.on_front for row in board.rows):
        yield rf"{_FRONT}on the front of accuracy against {SIZES[board.size]}."
    if board.references:
        yield rf"{_REFERENCE}~a reference, which is not ranked."
    standings = {standing for name in COMPARED if name in names for standing in board.standings(name)}
    if "best" in standings:
        yield "Bold: the highest mean of its column."
    if "not significant" in standings:
        test = "paired $t$-test over common seeds, Holm's correction"
        yield rf"Underlined: not significantly different from it ({test}, $p \geq {LEVEL}$)."
    if "too few seeds" in standings:
        yield f"$^{{?}}$ fewer than {FEWEST_PAIRS} seeds in common with it."
    if board.seed_note is not None:
        yield f"{_FEW_SEEDS} {escape_latex(board.seed_note)}."
    if any(row.tunings for row in board.rows):
        yield f"{_TUNED} hyper-parameters tuned on other seeds."
    if any(row.mean(name) is None for row in board.rows for name in names):
        yield "--: not measured for every seed."
    yield from (f"{escape_latex(text)}." for text in stated(board))
    yield from (f"{escape_latex(view)}." for view in board.views)
