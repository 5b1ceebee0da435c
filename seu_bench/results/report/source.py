"""What is shown: leaderboards, and the records behind the rows that are drawn. The only module here that knows how
leaderboards are made."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from seu_bench.errors import ResultsError
from seu_bench.results.leaderboard.boards import Leaderboard
from seu_bench.results.leaderboard.building import read_leaderboards
from seu_bench.results.leaderboard.markdown import LEGEND, cells
from seu_bench.results.record import Record, read_record, record_path
from seu_bench.results.record_files import read_records, require_records
from seu_bench.results.report.picture import Configuration
from seu_bench.results.report.styles import styles_of
from seu_bench.utils.text import printable

#: The paper's strategies: where not all configurations can be drawn, theirs are.
_FIRST: Final = ("seu", "naive", "ewc", "pnn", "ltg")


@dataclass(frozen=True)
class Cell:
    """A cell of a leaderboard: as it is read, and the number that it is sorted by; ``None``: not measured."""

    text: str
    value: float | None


@dataclass(frozen=True)
class Row:
    """A row of a leaderboard: on one line, without control characters, and not escaped."""

    rank: int
    label: str
    strategy: str
    seeds: int
    parameters: float | None
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Heading:
    """A column of a leaderboard."""

    text: str
    definition: str


@dataclass(frozen=True)
class Group:
    """One leaderboard: what may be compared, and nothing else.

    Attributes:
        name: of files.
        rows: all of them.
        drawn: the configurations that figures show, in the order of the rows.
        missing: rows that were chosen and could not be drawn: their records went meanwhile.
        is_drawn: whether it is one of the groups that have figures, whose records are read in full.
        legend: what marks in cells mean.
    """

    name: str
    title: str
    benchmark: str
    version: int
    protocol: str
    fingerprint: str
    records: int
    excluded: tuple[str, ...]
    headings: tuple[Heading, ...]
    rows: tuple[Row, ...]
    drawn: tuple[Configuration, ...]
    missing: int
    is_drawn: bool
    legend: str = ""


def read_groups(
    results: Path, benchmark: str | None, protocol: str | None, most: int, drawn: int
) -> tuple[list[Group], list[str]]:
    """The groups of a results folder, and which records are in none of them and why.

    Args:
        benchmark, protocol: only those of this one.
        most: configurations to draw in each group.
        drawn: groups that have figures, those with the most records.

    Raises:
        ResultsError: there are no records, or none of this benchmark and protocol that can be ranked.
    """
    require_records(results)
    boards, outside = _boards(results, benchmark)
    found = [board for board in boards if protocol in (None, board.protocol)]
    if not found and (benchmark or protocol):
        asked = [f"{what} {name!r}" for what, name in (("benchmark", benchmark), ("protocol", protocol)) if name]
        raise ResultsError(
            f"no record of {' and '.join(asked)} can be ranked",
            where=str(results),
            remedy="see which there are with seu-bench leaderboard" + "".join(f"\n  {line}" for line in outside),
        )
    largest = sorted(range(len(found)), key=lambda place: -found[place].records)[:drawn]
    behind = [_rows_drawn(board, most if place in largest else 0) for place, board in enumerate(found)]
    records = _records(results, {run_id for rows in behind for run_ids in rows.values() for run_id in run_ids})
    groups = []
    for place, (board, rows) in enumerate(zip(found, behind, strict=True)):
        there = {row: run_ids for row, run_ids in rows.items() if records.keys() >= set(run_ids)}
        runs = {row: tuple(records[run_id] for run_id in run_ids) for row, run_ids in there.items()}
        groups.append(_group(board, runs, len(rows) - len(there), place in largest))
    return groups, outside


def _boards(results: Path, benchmark: str | None) -> tuple[list[Leaderboard], list[str]]:
    """The leaderboards, and which records enter none of them and why."""
    build = read_leaderboards(results)
    return [board for board in build.boards if benchmark in (None, board.benchmark)], build.excluded(benchmark)


def _rows_drawn(board: Leaderboard, most: int) -> dict[int, list[str]]:
    """The rows that are drawn, by their places, with the ids of their runs."""
    chosen = choose([row.record.strategy for row in board.rows], most)
    return {place: list(board.rows[place].run_ids.values()) for place in chosen}


def _group(board: Leaderboard, runs: Mapping[int, tuple[Record, ...]], missing: int, is_drawn: bool) -> Group:
    """A group of a leaderboard and the records behind some of its rows, by their places."""
    rows = tuple(
        Row(
            row.rank,
            printable(row.configuration),
            printable(row.record.strategy),
            row.seeds,
            row.mean("params_total"),
            tuple(Cell(text, row.mean(key)) for key, text in zip(board.columns, texts[3:], strict=True)),
        )
        for row, texts in zip(board.rows, cells(board), strict=True)
    )
    styles = styles_of([rows[place].strategy for place in runs])
    drawn = tuple(
        Configuration(rows[place].rank, rows[place].label, tuple(sorted(found, key=lambda run: run.seed)), style)
        for (place, found), style in zip(runs.items(), styles, strict=True)
    )
    return Group(
        board.name,
        board.title,
        board.benchmark,
        board.benchmark_version,
        board.protocol,
        board.data_fingerprint,
        board.records,
        board.excluded,
        tuple(Heading(board.heading(key), metric.summary) for key, metric in board.columns.items()),
        rows,
        drawn,
        missing,
        is_drawn,
        LEGEND,
    )


def choose(strategies: Sequence[str], most: int) -> list[int]:
    """Which rows are drawn, best first: the best of each of the paper's strategies, then the best of each other
    strategy, then the next best.

    Args:
        strategies: of the rows, best first.
    """
    best: dict[str, int] = {}
    for place, strategy in enumerate(strategies):
        best.setdefault(strategy, place)
    order = [best[strategy] for strategy in _FIRST if strategy in best]
    order += [place for strategy, place in best.items() if strategy not in _FIRST]
    order += [place for place in range(len(strategies)) if place not in set(best.values())]
    return sorted(order[:most])


def _records(results: Path, wanted: set[str]) -> dict[str, Record]:
    """Records by run id, as far as they are there: each in the folder of that name, unless somebody renamed it."""
    found = {}
    for run_id in wanted:
        with contextlib.suppress(ResultsError):
            record = read_record(record_path(results, run_id))
            if record.run_id == run_id:
                found[run_id] = record
    if len(found) < len(wanted):
        renamed = (item for item in read_records(results) if isinstance(item, Record))
        found |= {item.run_id: item for item in renamed if item.run_id in wanted and item.run_id not in found}
    return found
