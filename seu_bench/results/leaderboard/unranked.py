"""Leaderboards of finished runs that are never ranked, such as those of the protocol ``smoke``: to look at, no more.

Each has runs of one reason alone, and says it in its title. They are neither written to files nor compared: no row is
the best, or on a front.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from seu_bench.config.streams import SCENARIOS
from seu_bench.results.labels import why_not_ranked
from seu_bench.results.leaderboard.boards import Leaderboard
from seu_bench.results.leaderboard.building import board_of, free_name
from seu_bench.results.leaderboard.ordering import ACCURACY, by_metric
from seu_bench.results.metric import Metric
from seu_bench.results.record import Record
from seu_bench.results.record_metrics import METRICS

#: What is in one leaderboard: benchmark, version, protocol; place of its scenario among all; why it is not ranked; data
#: fingerprint.
_Place: TypeAlias = tuple[str, int, str, int, str, str]


def unranked_leaderboards(
    records: Iterable[Record], metrics: Mapping[str, Metric] = METRICS
) -> tuple[Leaderboard, ...]:
    """Make leaderboards of the finished records that no ranked leaderboard has.

    Args:
        records: of a results folder, ranked ones included.
        metrics: those known.

    Returns:
        One for each benchmark, version, protocol, scenario, reason and data, in this order; rows are ordered by
        accuracy.

    Example:
        ``unranked_leaderboards(read_leaderboards(Path("results")).records)``
    """
    places: dict[_Place, list[Record]] = defaultdict(list)
    for record in records:
        if record.status == "finished" and (reason := _reason(record)) is not None:
            place = record.benchmark, record.benchmark_version, record.protocol, SCENARIOS.index(record.scenario)
            places[*place, reason, record.data_fingerprint or ""].append(record)
    boards: list[Leaderboard] = []
    for where, runs in sorted(places.items(), key=lambda item: item[0]):
        reason, fingerprint = where[4:]
        taken = {board.name for board in boards}
        name = free_name(runs[0], fingerprint, taken, f"{runs[0].protocol}-unranked")
        boards.append(_without_ranks(board_of(runs, metrics, name), reason))
    return tuple(boards)


def finished_unranked(records: Iterable[Record], benchmark: str | None = None) -> int:
    """Count the records that only such a leaderboard shows, of one benchmark or of all."""
    return sum(
        record.status == "finished" and why_not_ranked(record) is not None
        for record in records
        if benchmark in (None, record.benchmark)
    )


def _reason(record: Record) -> str | None:
    """Why a record is not ranked, with the numbers that make two such runs comparable or not."""
    reason = why_not_ranked(record)
    if reason is None:
        return None
    numbers = {"limit": record.limit, "first tasks": record.first_tasks}
    given = [f"{name}: {value:,}" for name, value in numbers.items() if value is not None]
    return "; ".join([reason, *given])


def _without_ranks(board: Leaderboard, reason: str) -> Leaderboard:
    rows = [replace(row, rank=None, on_front=False) for row in board.rows]
    ordered = by_metric(rows, ACCURACY, METRICS[ACCURACY])
    numbered = tuple(replace(row, number=number) for number, row in enumerate(ordered, 1))
    return replace(board, rows=numbered, unranked=reason)
