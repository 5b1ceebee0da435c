"""What the page's buttons save: its tables as CSV and LaTeX, and the PDF of its figures, within the page itself.

A link to data needs no script and no file beside the page, so that a page that was sent by mail has them all.
"""

from __future__ import annotations

import base64
import csv
import io
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from seu_bench.results.formats import plain_table, to_csv, to_latex
from seu_bench.results.leaderboard import Leaderboard
from seu_bench.utils.text import spreadsheet_cell

#: Between a mean and its deviation.
_PLUS_MINUS: Final = " ± "


class Download(NamedTuple):
    """A file that a link saves: what the link says, the file's name, and its content as an address."""

    label: str
    name: str
    href: str


def download(label: str, name: str, content: str | bytes) -> Download:
    """Make a link of a file's content, by the ending of its name."""
    kinds = {"csv": "text/csv;charset=utf-8", "tex": "text/plain;charset=utf-8", "pdf": "application/pdf"}
    data = content.encode() if isinstance(content, str) else content
    return Download(label, name, f"data:{kinds[name.rpartition('.')[2]]};base64,{base64.b64encode(data).decode()}")


def table_files(name: str, rows: Sequence[Sequence[str]]) -> list[Download]:
    """Make the links of a table.

    Args:
        name: of its files, without ending.
        rows: the headings, then a row of text for each.
    """
    head, *body = rows
    latex = plain_table(head, body)
    return [download("CSV", f"{name}.csv", to_csv_text(rows)), download("LaTeX", f"{name}.tex", latex)]


def board_files(board: Leaderboard, most: int) -> list[Download]:
    """Make the links of a leaderboard, the same as its own file; of very many rows, those that the page has."""
    rows = board.first(most)
    shown = board if len(rows) == len(board.rows) else board.narrowed(rows, f"the first {len(rows)} rows")
    return [
        download("CSV", f"{board.name}.csv", to_csv([shown])),
        download("LaTeX", f"{board.name}.tex", to_latex(shown)),
    ]


def to_csv_text(rows: Sequence[Sequence[str]]) -> str:
    """Write a table as CSV: means and deviations in columns of their own, blank where nothing was measured.

    No cell is a formula for a spreadsheet.
    """
    head, *body = rows
    parted = [any(_PLUS_MINUS in row[place] for row in body) for place in range(len(head))]
    names: list[tuple[str, ...]] = [
        (name, f"{name} deviation") if two else (name,) for name, two in zip(head, parted, strict=True)
    ]
    lines: list[list[tuple[str, ...]]] = [
        names,
        *([_parts(cell, two) for cell, two in zip(row, parted, strict=True)] for row in body),
    ]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [_plain(cell) for cells in line for cell in cells] for line in lines
    )
    return text.getvalue()


def _parts(cell: str, two: bool) -> tuple[str, ...]:
    mean, _, deviation = cell.partition(_PLUS_MINUS)
    return (mean, deviation) if two else (cell,)


def _plain(cell: str) -> object:
    """A number as it is; not measured is blank; of any other text nothing that a spreadsheet would calculate."""
    if cell == "-":
        return ""
    return cell if re.fullmatch(r"[-+]?[0-9][0-9.]*", cell) else spreadsheet_cell(cell)
