"""HTML tables for notebooks: text escaped, no scripts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final, NamedTuple

from seu_bench.utils.text import printable

#: Rows of a table; the rest is counted.
MOST_ROWS: Final = 100


class Strong(NamedTuple):
    """A cell in bold."""

    text: str


def html_table(
    title: str, headings: Sequence[str], rows: Iterable[Sequence[object]], notes: Iterable[str] = (), left: int = 1
) -> str:
    """Return a table for a notebook.

    Args:
        title: above it.
        headings: of the columns.
        rows: of cells: :class:`Strong`, or anything as its text; ``None`` is a dash.
        notes: lines below it.
        left: columns at the left that hold text; numbers in the others are aligned to the right.
    """
    shown = list(rows)
    lines = ['<div style="overflow-x: auto">', f"<p><strong>{_text(title)}</strong></p>" if title else ""]
    if shown:
        lines += ["<table>", f"<thead>{_row('th', headings, left)}</thead>", "<tbody>"]
        lines += [*(_row("td", row, left) for row in shown[:MOST_ROWS]), "</tbody>", "</table>"]
    if len(shown) > MOST_ROWS:
        lines.append(f"<p>and {len(shown) - MOST_ROWS:,} more</p>")
    return "\n".join([*lines, *(f"<p><small>{_text(note)}</small></p>" for note in notes), "</div>"])


def matrix_table(
    title: str, names: Sequence[str], matrix: Sequence[Sequence[float | None]], notes: Iterable[str] = ()
) -> str:
    """Return an accuracy matrix in percent; rows without a measurement are left out."""
    tasks = max([len(names), *map(len, matrix)])
    rows: list[list[object]] = []
    for after, values in enumerate(matrix):
        if any(value is not None for value in values):
            shown = [None if value is None else f"{100 * value:.1f}" for value in values]
            rows.append([f"{after} {[*names, ''][min(after, len(names))]}", *shown, *[None] * (tasks - len(shown))])
    return html_table(title, ["accuracy (%) after learning", *map(str, range(tasks))], rows, notes)


def values_table(values: Mapping[str, float | None]) -> str:
    """Return metrics with the values that they have in a record; those that were not measured are left out."""
    measured = {name: value for name, value in values.items() if value is not None}
    rows = [(name, f"{value:,}" if isinstance(value, int) else f"{value:,.4g}") for name, value in measured.items()]
    return html_table("metrics", ["metric", "value"], rows)


def _row(tag: str, cells: Sequence[object], left: int) -> str:
    shown = []
    for place, cell in enumerate(cells):
        text = f"<strong>{_text(cell.text)}</strong>" if isinstance(cell, Strong) else _text(cell)
        shown.append(f'<{tag} style="text-align: {"left" if place < left else "right"}">{text}</{tag}>')
    return f"<tr>{''.join(shown)}</tr>"


def _text(cell: object) -> str:
    text = "-" if cell is None else printable(str(cell))
    return escape(text if len(text) <= 300 else f"{text[:300]}...")
