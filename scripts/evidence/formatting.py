"""Numbers and differences in words: always with their deviation, and with their significance over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas

from scripts.evidence.runs import by_seed
from seu_bench.results import compare_paired, summarize

#: How a metric is shown: a factor, decimals, the unit.
SHOWN = {
    "acc": (100.0, 1, " %"),
    "forgetting": (100.0, 2, " %"),
    "mixed_score": (1.0, 4, ""),
    "params_total": (1.0, 0, ""),
    "train_cpu_seconds": (1.0, 0, " s"),
    "reused": (100.0, 0, " %"),
    "score_per_cpu_minute": (1.0, 3, ""),
}


def number(value: float, metric: str) -> str:
    """Format a value of a metric in the unit that readers expect."""
    factor, decimals, unit = SHOWN[metric]
    return f"{value * factor:,.{decimals}f}{unit}"


def _change(value: float, metric: str, *, unit: bool = False) -> str:
    """Format a difference of two values: of percentages it is in points."""
    factor, decimals, name = SHOWN[metric]
    shown = {" %": " points"}.get(name, name) if unit else ""
    return f"{value * factor:+,.{decimals}f}{shown}"


def mean(values: Iterable[float], metric: str) -> str:
    """Format mean and deviation over seeds; ``-`` where nothing was measured, the value alone for one seed."""
    found = summarize(list(values))
    if found is None:
        return "-"
    factor, decimals, unit = SHOWN[metric]
    deviation = "" if found.std is None else f" ± {found.std * factor:,.{decimals}f}"
    return f"{found.mean * factor:,.{decimals}f}{deviation}{unit}"


def difference(one: pandas.DataFrame, other: pandas.DataFrame, metric: str) -> str:
    """Compare ``one`` with ``other`` on the seeds that both have: mean difference, 95 % interval, and the verdict
    (docs/reference/leaderboards.md#statistics). ``-`` without a common seed."""
    found, *_ = compare_paired([(by_seed(one, metric), by_seed(other, metric))])
    if found.summary is None:
        return "-"
    interval, mean_of = "", found.summary
    if mean_of.low is not None and mean_of.high is not None:
        interval = f", {_change(mean_of.low, metric)} to {_change(mean_of.high, metric)}"
    seeds = f"{found.pairs} seed{'s' if found.pairs != 1 else ''}"
    return f"{_change(mean_of.mean, metric, unit=True)} ({seeds}{interval}; {found.verdict})"


def counted(pairs: Iterable[tuple[pandas.DataFrame, pandas.DataFrame]], metric: str) -> str:
    """Count the pairs whose first side is significantly above, or below, the other; too few seeds: not counted."""
    counts = dict.fromkeys(("above", "below", "not significant"), 0)
    for found in compare_paired([(by_seed(one, metric), by_seed(other, metric)) for one, other in pairs]):
        if found.verdict == "significant":
            counts["above" if found.summary and found.summary.mean > 0 else "below"] += 1
        elif found.verdict == "not significant":
            counts["not significant"] += 1
    return ", ".join(f"{name} in {count}" for name, count in counts.items())


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """Format a table of Markdown; the first ``texts`` columns are texts, the others numbers."""
    lines = ["| " + " | ".join(headings) + " |", "| --- " * texts + "| ---: " * (len(headings) - texts) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])
