"""From a results folder to leaderboards, and to their files."""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seu_bench.results.labels import configuration_labels
from seu_bench.results.leaderboard.boards import COLUMNS, Leaderboard, Row
from seu_bench.results.leaderboard.grouping import CHOICES, Collection, Place, collect, configurations, told
from seu_bench.results.leaderboard.sample_summary import spread
from seu_bench.results.record import Record
from seu_bench.utils.files import refuse_link, write_atomic


@dataclass(frozen=True)
class LeaderboardBuild:
    """What was made of a results folder.

    Attributes:
        boards: all of them, whole, in the order of their names.
        paths: the files written.
    """

    collection: Collection
    boards: tuple[Leaderboard, ...]
    paths: tuple[Path, ...]

    def left_out(self, benchmark: str | None = None) -> list[str]:
        """Which records enter no leaderboard and why, one line for each reason."""
        return _left_out(self.collection, benchmark)


def make_leaderboards(results: Path) -> LeaderboardBuild:
    """Read a results folder once, and write every leaderboard of it.

    The files are ``<results>/leaderboards/<benchmark>-v<version>-<protocol>.md`` and ``.csv``. One process at a time
    reads records and writes, so that the last one has seen those of all.

    Raises:
        ResultsError: the folder does not exist or cannot be written to.
    """
    from seu_bench.utils.locks import alone_in

    folder = results / "leaderboards"
    if results.is_dir():
        refuse_link(folder, "remove it; leaderboards can be made again at any time")
    else:
        collect(results)  # says that it is not there
    written = []
    with alone_in(folder):
        collection = collect(results)
        boards = boards_of(collection)
        for board in boards:
            for suffix, text in ((".md", board.to_markdown()), (".csv", board.to_csv())):
                path = folder / f"{board.name}{suffix}"
                write_atomic(path, text)
                written.append(path)
    return LeaderboardBuild(collection, tuple(boards), tuple(written))


def write_leaderboards(results: Path) -> list[Path]:
    """Write every leaderboard as :func:`make_leaderboards` does.

    Returns:
        The files written.

    Raises:
        ResultsError: the folder does not exist or cannot be written to.
    """
    return list(make_leaderboards(results).paths)


def build_leaderboards(results: Path, benchmark: str | None = None) -> list[Leaderboard]:
    """The leaderboards of a results folder in the order of their names; nothing is written.

    Args:
        results: the folder that holds ``runs``.
        benchmark: only those of this benchmark.

    Raises:
        ResultsError: the folder does not exist.
    """
    # Chosen last, so that a leaderboard's name does not depend on which others were asked for.
    return [board for board in boards_of(collect(results)) if benchmark in (None, board.benchmark)]


def left_out(results: Path, benchmark: str | None = None) -> list[str]:
    """Which records of a results folder enter no leaderboard and why, one line for each reason.

    Raises:
        ResultsError: the folder does not exist.
    """
    return _left_out(collect(results), benchmark)


def boards_of(collection: Collection) -> list[Leaderboard]:
    """The leaderboards of records that were read already."""
    unread = collection.unread_lines()
    groups = collection.groups()
    boards = []
    names: set[str] = set()
    for place in sorted(groups):
        by_data = groups[place]
        unranked = collection.unranked_lines(place)
        for fingerprint in sorted(by_data, key=lambda key: (-len(by_data[key]), key)):
            name = _free_name(place, fingerprint, names)
            names.add(name)
            rows, repeated = _rows(by_data[fingerprint])
            reason = "a later record has the same configuration and seed"
            lines = (*told("not counted", repeated, reason), *unranked, *unread)
            records = sum(row.seeds for row in rows)
            boards.append(Leaderboard(*place, fingerprint, name, len(by_data), records, lines, rows))
    return boards


def _left_out(collection: Collection, benchmark: str | None) -> list[str]:
    return [*collection.unranked_lines(benchmark=benchmark), *collection.unread_lines()]


def _free_name(place: Place, fingerprint: str, taken: set[str]) -> str:
    """The plain name; with the fingerprint's beginning, then a number, where another leaderboard has it."""
    plain = "{}-v{}-{}".format(*place)
    if len(plain) > 200:  # file systems take 255 letters
        plain = f"{plain[:180]}-{hashlib.sha256(plain.encode()).hexdigest()[:16]}"
    longer = f"{plain}-{fingerprint[:8]}"
    candidates = itertools.chain([plain, longer], (f"{longer}-{number}" for number in itertools.count(2)))
    # Names come from records, which may hold anything: no letter may leave the folder.
    return next(name for text in candidates if (name := re.sub(r"[^A-Za-z0-9._-]", "_", text)) not in taken)


def _rows(records: Sequence[Record]) -> tuple[tuple[Row, ...], list[str]]:
    """The rows of one leaderboard, best first, and the runs that do not count."""
    chosen, repeated = configurations(records)
    labels = configuration_labels([runs[0] for runs in chosen])
    rows = [_row(label, runs) for label, runs in zip(labels, chosen, strict=True)]
    # A score is never negative, so that what was not measured comes last.
    rows.sort(key=lambda row: (-(row.mean("mixed_score") or 0), row.configuration))
    return tuple(replace(row, rank=rank) for rank, row in enumerate(rows, start=1)), repeated


def _row(label: str, runs: Sequence[Record]) -> Row:
    first = runs[0]
    values = {
        metric: {
            run.seed: float(value)
            for run in runs
            if (value := run.metrics.get(metric)) is not None and math.isfinite(value)
        }
        for metric in COLUMNS
    }
    return Row(
        rank=0,
        configuration=label,
        strategy=first.strategy,
        searcher=first.searcher,
        creator=first.creator,
        choices={part: getattr(first, part) for part in CHOICES},
        run_ids={run.seed: run.run_id for run in runs},
        values=values,
        # A mean over some of the seeds would not compare with the others.
        spreads={
            metric: spread(list(found.values())) if len(found) == len(runs) else None
            for metric, found in values.items()
        },
    )
