"""Numbers and differences in words: always with their deviation, and with their significance over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas

from scripts.evidence.runs import by_seed
from seu_bench.results.leaderboard.sample_summary import summarize, verdict

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
    """Compare ``one`` with ``other`` on the seeds that both have: mean difference, 95 % interval, and the verdict of
    the paired t-test (docs/reference/leaderboards.md). ``-`` without a common seed."""
    ours, theirs = by_seed(one, metric), by_seed(other, metric)
    common = sorted(ours.keys() & theirs.keys())
    found = summarize([ours[seed] - theirs[seed] for seed in common])
    if found is None:
        return "-"
    interval = ""
    if found.low is not None and found.high is not None:
        interval = f", {_change(found.low, metric)} to {_change(found.high, metric)}"
    seeds = f"{found.number} seed{'s' if found.number != 1 else ''}"
    return f"{_change(found.mean, metric, unit=True)} ({seeds}{interval}; {verdict(ours, theirs)})"


def counted(pairs: Iterable[tuple[pandas.DataFrame, pandas.DataFrame]], metric: str) -> str:
    """Count the pairs whose first side is significantly above, or below, the other; too few seeds: not counted."""
    counts = dict.fromkeys(("above", "below", "not significant"), 0)
    for one, other in pairs:
        ours, theirs = by_seed(one, metric), by_seed(other, metric)
        found = verdict(ours, theirs)
        if found == "significant":
            common = ours.keys() & theirs.keys()
            counts["above" if sum(ours[seed] - theirs[seed] for seed in common) > 0 else "below"] += 1
        elif found == "not significant":
            counts["not significant"] += 1
    return ", ".join(f"{name} in {count}" for name, count in counts.items())


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """Format a table of Markdown; the first ``texts`` columns are texts, the others numbers."""
    lines = ["| " + " | ".join(headings) + " |", "| --- " * texts + "| ---: " * (len(headings) - texts) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])
