"""HTML tables for notebooks: text escaped, no scripts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final

from seu_bench.utils.text import printable

#: Rows of a table; the rest is counted.
_MOST_ROWS: Final = 100


def html_table(
    title: str, headings: Sequence[str], rows: Iterable[Sequence[object]], notes: Iterable[str] = (), left: int = 1
) -> str:
    """Return a table for a notebook, with ``notes`` below it; the first ``left`` columns hold text."""
    shown = list(rows)
    lines = ['<div style="overflow-x: auto">', f"<p><strong>{_text(title)}</strong></p>"]
    if shown:
        lines += ["<table>", f"<thead>{_row('th', headings, left)}</thead>", "<tbody>"]
        lines += [*(_row("td", row, left) for row in shown[:_MOST_ROWS]), "</tbody>", "</table>"]
    if len(shown) > _MOST_ROWS:
        lines.append(f"<p>and {len(shown) - _MOST_ROWS:,} more</p>")
    return "\n".join([*lines, *(f"<p><small>{_text(note)}</small></p>" for note in notes), "</div>"])


def matrix_table(
    title: str, names: Sequence[str], matrix: Sequence[Sequence[float | None]], notes: Iterable[str] = ()
) -> str:
    """Return an accuracy matrix in percent; rows without a measurement are left out."""
    rows = [
        (f"{task} {name}", *(None if value is None else f"{100 * value:.1f}" for value in values))
        for task, (name, values) in enumerate(zip(names, matrix, strict=False))
        if any(value is not None for value in values)
    ]
    return html_table(title, ["accuracy (%) after learning", *map(str, range(len(names)))], rows, notes)


def values_table(values: Mapping[str, float | None]) -> str:
    """Return metrics with the values that they have in a record; those that were not measured are left out."""
    measured = {name: value for name, value in values.items() if value is not None}
    rows = [(name, f"{value:,}" if isinstance(value, int) else f"{value:,.4g}") for name, value in measured.items()]
    return html_table("metrics", ["metric", "value"], rows)


def _row(tag: str, cells: Sequence[object], left: int) -> str:
    aligned = ["left" if place < left else "right" for place in range(len(cells))]
    shown = (f'<{tag} style="text-align: {at}">{_text(it)}</{tag}>' for at, it in zip(aligned, cells, strict=True))
    return f"<tr>{''.join(shown)}</tr>"


def _text(cell: object) -> str:
    text = "-" if cell is None else printable(str(cell))
    return escape(text if len(text) <= 300 else f"{text[:300]}...")
