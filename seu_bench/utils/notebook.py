"""Small HTML tables for notebooks: text escaped, no scripts, no colours but a shade that suits light and dark ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final, NamedTuple

from seu_bench.utils.text import printable

#: Rows of a table; the rest is counted.
MOST_ROWS: Final = 100
#: Letters of a cell; the rest is cut.
_LONGEST: Final = 300


class Shaded(NamedTuple):
    """A cell with a ground, the stronger the higher ``share`` in [0, 1] is."""

    text: str
    share: float


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
        rows: of cells: :class:`Shaded`, :class:`Strong`, or anything as its text; ``None`` is a dash.
        notes: lines below it.
        left: columns at the left that hold text; numbers in the others are aligned to the right.

    Returns:
        HTML, every text of which is escaped.
    """
    lines = ['<div style="overflow-x: auto">', f"<p><strong>{_text(title)}</strong></p>"] if title else ["<div>"]
    shown = list(rows)
    if shown:
        lines += ["<table>", "<thead><tr>", *_cells("th", headings, left), "</tr></thead>", "<tbody>"]
        for row in shown[:MOST_ROWS]:
            lines += ["<tr>", *_cells("td", row, left), "</tr>"]
        lines += ["</tbody>", "</table>"]
    if len(shown) > MOST_ROWS:
        lines.append(f"<p>and {len(shown) - MOST_ROWS:,} more</p>")
    lines += [f"<p><small>{_text(note)}</small></p>" for note in notes]
    return "\n".join([*lines, "</div>"])


def matrix_table(
    title: str, names: Sequence[str], matrix: Sequence[Sequence[float | None]], notes: Iterable[str] = ()
) -> str:
    """Return an accuracy matrix in percent, shaded the more the higher; rows without a measurement are left out."""
    tasks = max([len(names), *map(len, matrix)])
    rows: list[list[object]] = []
    for after, values in enumerate(matrix):
        if any(value is not None for value in values):
            shown = [None if value is None else Shaded(f"{100 * value:.1f}", value) for value in values]
            rows.append(
                [f"{after} {names[after] if after < len(names) else ''}", *shown, *[None] * (tasks - len(shown))]
            )
    return html_table(title, ["accuracy (%) after learning", *map(str, range(tasks))], rows, notes)


def values_table(values: Mapping[str, float | None]) -> str:
    """Return metrics with the values that they have in a record; those that were not measured are left out."""
    measured = {name: value for name, value in values.items() if value is not None}
    rows = [(name, f"{value:,}" if isinstance(value, int) else f"{value:,.4g}") for name, value in measured.items()]
    return html_table("metrics", ["metric", "value"], rows)


def _cells(tag: str, cells: Sequence[object], left: int) -> Iterable[str]:
    for place, cell in enumerate(cells):
        style = f"text-align: {'left' if place < left else 'right'}"
        match cell:
            case Shaded(text, share):
                # Over any ground: letters keep their contrast to it.
                style += f"; background: rgba(30, 150, 160, {0.35 * min(1.0, max(0.0, share)):.2f})"
                content = _text(text)
            case Strong(text):
                content = f"<strong>{_text(text)}</strong>"
            case None:
                content = "-"
            case _:
                content = _text(str(cell))
        yield f'<{tag} style="{style}">{content}</{tag}>'


def _text(text: str) -> str:
    shown = printable(text)
    return escape(shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}...")
