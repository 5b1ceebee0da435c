"""Searchers and creators of SEU beside each other."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.evidence.evidence import COMPONENTS, PROTOCOLS, Evidence
from scripts.evidence.formatting import NOTHING, heading, mean, table
from seu_bench.results.record import Record
from seu_bench.results.statistics import summarize

_COLUMNS = ("acc", "params_total", "train_flops", "mixed_score")


def components_table(evidence: Evidence) -> str:
    """One row per searcher and creator, the highest accuracy first; empty where it was not run."""
    shares = {
        record.run_id: reused_share(record)
        for name in (COMPONENTS, *PROTOCOLS)  # SEU itself is among the runs of a protocol
        for record in evidence.records(name)
    }
    rows = []
    for group in evidence.sets[COMPONENTS]:
        columns = [name for name in _COLUMNS if any(row.mean(name) is not None for row in group.rows.values())]
        for row in sorted(group.rows.values(), key=lambda row: -(row.mean("acc") or 0)):
            pair = (f"`{row.record.searcher}`", f"`{row.record.creator}`")
            reused = percent([shares.get(run_id) for run_id in row.run_ids.values()])
            rows.append((*pair, str(row.seeds), *[mean(row, name) for name in columns], reused))
        headings = ("searcher", "creator", "seeds", *map(heading, columns), "places that reuse a unit (%)")
    return table(headings, rows, texts=2) if rows else ""


def reused_share(record: Record) -> float | None:
    """Of the places on the paths of all tasks but the first, the share that holds a unit of an earlier task."""
    units = record.unit_tasks or ()
    places = [
        units[layer][index] < task
        for task, path in enumerate(record.paths or ())
        if task > 0
        for layer, index in enumerate(path)
    ]
    return sum(places) / len(places) if places else None


def percent(shares: Sequence[float | None]) -> str:
    """Mean of shares and half of its 95 % interval, in percent."""
    found = summarize(shares)
    if found is None:
        return NOTHING
    return f"{100 * found.mean:.0f}" + ("" if found.high is None else f" ± {100 * (found.high - found.mean):.0f}")
