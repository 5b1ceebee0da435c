"""The page, made from what was measured and from nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from scripts.perf.catalogue import COMPARISONS
from scripts.perf.comparison import Comparison, Unit, Value, Wanted

INTRODUCTION = """\
# Performance

Made by `make perf` (`scripts/perf`) from [performance.json](performance.json). Each comparison is a process of its own:
everything that is compared was measured there side by side, in alternating rounds, and ratios are medians of ratios
within a round. `-` is what was not measured. Other machines give other figures."""
_BEFORE = "before"

Measured: TypeAlias = Mapping[str, Mapping[str, Any]]


def page(document: Mapping[str, Any]) -> Iterator[str]:
    """The measurements as lines of Markdown, those of an earlier state beside them, if the document has any."""
    measured: Measured = document["comparisons"]
    earlier: Measured = document.get(_BEFORE, {})
    yield INTRODUCTION
    yield from _overview(measured, earlier)
    yield from _machines(measured)
    if earlier:
        states = {tuple(each["machine"][key] for key in ("revision", "date")): each for each in earlier.values()}
        told = (f"{_short(revision)} of {date}" for revision, date in sorted(states, key=lambda state: state[1]))
        yield from ("", f"Columns *{_BEFORE}* are the same measurements of earlier states: {', '.join(told)}.")
    for comparison in COMPARISONS:
        yield from _section(comparison, measured.get(comparison.name, {}), earlier.get(comparison.name, {}))


def _overview(measured: Measured, earlier: Measured) -> Iterator[str]:
    yield from ("", "## What was wanted", "")
    columns = ["comparison", "figure", "measured", *([_BEFORE] if earlier else []), "wanted", "reached"]
    yield from _header(columns, [False, False, *[True] * (len(columns) - 3), False])
    for comparison in COMPARISONS:
        values = measured.get(comparison.name, {}).get("values", {})
        former = earlier.get(comparison.name, {}).get("values", {})
        for wanted in comparison.wanted:
            value: Value = values.get(wanted.id)
            reached = wanted.reached(value)
            verdict = "not measured" if reached is None else "yes" if reached else "**no**"
            link = f"[{comparison.title}](#{_anchor(comparison.title)})"
            figures = [_figure(each.get(wanted.id), wanted.unit) for each in (values, *([former] if earlier else []))]
            yield _row([link, wanted.text, *figures, _wish(wanted), verdict])


def _machines(measured: Measured) -> Iterator[str]:
    """Describe the machine: what all comparisons share in words, the rest in a table."""
    yield from ("", "## Where it was measured", "")
    machines = [each["machine"] for each in measured.values() if "machine" in each]
    for key in ("cpu", "cores", "torch", "python", "platform"):
        found = list(dict.fromkeys(str(machine.get(key)) for machine in machines))
        if found:
            yield f"- {key}: {'; '.join(found)}"
    yield ""
    yield from _header(
        ["comparison", "date", "revision", "threads", "load before", "scale", "took s"],
        [False, False, False, True, True, True, True],
    )
    for comparison in COMPARISONS:
        each = measured.get(comparison.name)
        if each is not None:
            machine = each.get("machine", {})
            cells = [machine.get("date"), _short(machine.get("revision")), machine.get("threads"), machine.get("load")]
            yield _row([comparison.name, *map(_cell, [*cells, each.get("scale"), each.get("seconds")])])


def _section(comparison: Comparison, found: Mapping[str, Any], former: Mapping[str, Any]) -> Iterator[str]:
    yield from ("", f"## {comparison.title}", "", comparison.text, "")
    if "error" in found:
        yield f"Failed: {found['error']}"
        return
    if not found:
        yield f"Not measured (`python -m scripts.perf measure {comparison.name}`)."
        return
    settings = ", ".join(f"{name} {_cell(value)}" for name, value in found["settings"].items())
    yield f"Measured with: {settings}."
    wanted = {each.id for each in comparison.wanted}
    others = {name: value for name, value in found["values"].items() if name not in wanted}
    if others:
        yield ""
        yield "Besides: " + ", ".join(f"{name} {_cell(value)}" for name, value in others.items()) + "."
    for table in found["tables"]:
        yield from ("", f"### {comparison.title}: {table['title'].lower()}", "")
        columns, rows = _beside(table, former)
        right = [all(not isinstance(row[at], str) for row in rows) for at in range(len(columns))]
        yield from _header(columns, right)
        for row in rows:
            yield _row([_cell(value) for value in row])


def _beside(table: Mapping[str, Any], former: Mapping[str, Any]) -> tuple[list[str], list[list[Any]]]:
    """Columns and rows of a table, with the earlier value of the column that has one; rows are told by their labels."""
    columns, rows = list(table["columns"]), list(table["rows"])
    name = table.get("beside")
    same = [each for each in former.get("tables", ()) if each["title"] == table["title"] and name in each["columns"]]
    if not same:
        return columns, rows
    known = {_label(row, same[0]["columns"]): row[same[0]["columns"].index(name)] for row in same[0]["rows"]}
    return [*columns, f"{name}, {_BEFORE}"], [[*row, known.get(_label(row, columns))] for row in rows]


def _label(row: Sequence[Any], columns: Sequence[str]) -> tuple[Any, ...]:
    """What tells a row of its table: its texts, and the number of a task or column that it begins with."""
    first = row[:1] if columns[0] in ("task", "column") else ()
    return (*first, *(cell for cell in row if isinstance(cell, str)))


def _header(columns: Sequence[str], right: Sequence[bool]) -> Iterator[str]:
    yield _row(columns)
    yield _row(["---:" if is_right else "---" for is_right in right])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}" if abs(value) < 0.1 else f"{value:.2f}"
    return str(value)


def _figure(value: Value, unit: Unit) -> str:
    if value is None or unit == "yes":
        return _cell(value)
    return {"times": f"{value:.2f}", "share": f"{100 * value:.0f} %", "seconds": f"{value:.2f} s"}[unit]


def _wish(wanted: Wanted) -> str:
    if wanted.unit == "yes":
        return "yes"
    bounds = (("at least", wanted.least), ("at most", wanted.most))
    return ", ".join(f"{word} {_figure(bound, wanted.unit)}" for word, bound in bounds if bound is not None)


def _short(revision: object) -> str:
    """A commit by its first letters, and whether files differed from it."""
    text = str(revision or "-")
    commit, _, dirty = text.partition("-")
    return commit[:10] + ("-" + dirty if dirty else "") if commit else text


def _anchor(title: str) -> str:
    return "".join(letter for letter in title.lower().replace(" ", "-") if letter.isalnum() or letter == "-")
