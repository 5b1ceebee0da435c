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

Measured: TypeAlias = Mapping[str, Mapping[str, Any]]


def page(document: Mapping[str, Any]) -> Iterator[str]:
    """The measurements as lines of Markdown."""
    measured: Measured = document["comparisons"]
    yield INTRODUCTION
    yield from _overview(measured)
    yield from _machines(measured)
    for comparison in COMPARISONS:
        yield from _section(comparison, measured.get(comparison.name, {}))


def _overview(measured: Measured) -> Iterator[str]:
    yield from ("", "## What was wanted", "")
    yield from _header(["comparison", "figure", "measured", "wanted", "reached"], [False, False, True, True, False])
    for comparison in COMPARISONS:
        values = measured.get(comparison.name, {}).get("values", {})
        for wanted in comparison.wanted:
            value: Value = values.get(wanted.id)
            reached = wanted.reached(value)
            verdict = "not measured" if reached is None else "yes" if reached else "**no**"
            link = f"[{comparison.title}](#{_anchor(comparison.title)})"
            yield _row([link, wanted.text, _figure(value, wanted.unit), _wish(wanted), verdict])


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
        ["comparison", "date", "revision", "threads", "load before", "took s"],
        [False, False, False, True, True, True],
    )
    for comparison in COMPARISONS:
        each = measured.get(comparison.name)
        if each is not None:
            machine = each.get("machine", {})
            cells = [machine.get("date"), _short(machine.get("revision")), machine.get("threads"), machine.get("load")]
            yield _row([comparison.name, *map(_cell, [*cells, each.get("seconds")])])


def _section(comparison: Comparison, found: Mapping[str, Any]) -> Iterator[str]:
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
        columns, rows = table["columns"], table["rows"]
        right = [all(not isinstance(row[at], str) for row in rows) for at in range(len(columns))]
        yield from _header(columns, right)
        for row in rows:
            yield _row([_cell(value) for value in row])


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
    return {"times": f"{value:.2f}", "seconds": f"{value:.2f} s"}[unit]


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
