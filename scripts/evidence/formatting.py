"""Numbers in words and tables, in the units of leaderboards; templates of pages of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import jinja2

from seu_bench.results.leaderboard import Row
from seu_bench.results.record_metrics import known_metric

#: Where nothing was measured.
NOTHING: Final = "-"
#: Units of a difference, by the unit of the metric.
_POINTS: Final = {"fraction": " points"}


def mean(row: Row | None, metric: str, *, interval: bool = True) -> str:
    """Format the mean over seeds and half of its 95 % interval, in the unit of the metric's column; the value alone for
    one seed."""
    found = row.summary(metric) if row is not None else None
    if found is None:
        return NOTHING
    shown = known_metric(metric).format_cell
    half = found.high - found.mean if found.high is not None and interval else None
    return shown(found.mean) + ("" if half is None else f" ± {shown(half)}")


def change(value: float, metric: str) -> str:
    """Format a difference with its sign: of accuracies in points."""
    unit = known_metric(metric).unit
    text = known_metric(metric).format_cell(value)
    return f"{text if text.startswith('-') else '+' + text}{_POINTS.get(unit, '')}"


def ratio(one: float | None, other: float | None) -> str:
    """Format how many times as much one is as the other."""
    return NOTHING if one is None or not other else f"{one / other:,.3g} times"


def heading(metric: str) -> str:
    """Heading of a metric's column, with its unit."""
    return known_metric(metric).column or metric


def names(found: Iterable[str]) -> str:
    """Join names as code: ``a``, ``b`` and ``c``."""
    quoted = [f"`{name}`" for name in found]
    return " and ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """Format a table of Markdown; the first ``texts`` columns are texts, the others numbers."""
    lines = ["| " + " | ".join(headings) + " |", "| --- " * texts + "| ---: " * (len(headings) - texts) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def methods_table(rows: Mapping[str, Row], columns: Sequence[str]) -> str:
    """Format a row for each method, by name; sizes without their deviation."""
    lines = [
        (
            f"`{name}`" + ("" if row.reference is None else " (reference)"),
            str(row.seeds),
            *[mean(row, it, interval=not it.startswith(("memory", "mask"))) for it in columns],
        )
        for name, row in rows.items()
    ]
    return table(["method", "seeds", *map(heading, columns)], lines)


def template(name: str, folder: Path = Path(__file__).parent) -> jinja2.Template:
    """A template by the name of its file; a value that it names and is not given is an error."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # Markdown, of our own records
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)
