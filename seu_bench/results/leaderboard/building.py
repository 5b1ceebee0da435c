"""From a results folder to leaderboards, and to their files."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seu_bench.results.labels import configuration_labels
from seu_bench.results.leaderboard.boards import RANKED_BY, Leaderboard, Row, to_csv
from seu_bench.results.leaderboard.collection import Collection, Place, collect, configurations, exclusions
from seu_bench.results.leaderboard.markdown import to_markdown
from seu_bench.results.metric import Metric
from seu_bench.results.record import Record
from seu_bench.results.record_metrics import METRICS
from seu_bench.utils.files import refuse_link, write_atomic


@dataclass(frozen=True)
class LeaderboardBuild:
    """The leaderboards of a results folder.

    Attributes:
        collection: the records that were read.
        boards: all of them, complete, in the order of their names.
        paths: the files written.
    """

    collection: Collection
    boards: tuple[Leaderboard, ...]
    paths: tuple[Path, ...] = ()

    def excluded(self, benchmark: str | None = None) -> list[str]:
        """Records that enter no leaderboard, one line for each reason."""
        return self.collection.excluded(benchmark=benchmark)


def read_leaderboards(results: Path, metrics: Mapping[str, Metric] = METRICS) -> LeaderboardBuild:
    """Read a results folder, and make its leaderboards without writing a file.

    Args:
        results: the folder that holds the runs.
        metrics: those known, e.g. of the plugins installed; a column is shown where a record has its metric.

    Returns:
        The leaderboards, and the excluded records.

    Raises:
        ResultsError: the folder does not exist.

    Example:
        ``pandas.DataFrame(read_leaderboards(Path("results")).boards[0].table())``
    """
    collection = collect(results, metrics)
    return LeaderboardBuild(collection, tuple(_boards(collection, metrics)))


def make_leaderboards(results: Path, metrics: Mapping[str, Metric] = METRICS) -> LeaderboardBuild:
    """Read a results folder once, and write every leaderboard of it.

    The files are ``<results>/leaderboards/<benchmark>-v<version>-<protocol>.md`` and ``.csv``. One process at a time
    reads records and writes, so that the last one has seen those of all.

    Args:
        results: the folder that holds the runs.
        metrics: those known, e.g. of the plugins installed; a column is shown where a record has its metric.

    Returns:
        The leaderboards, and the excluded records.

    Raises:
        ResultsError: the folder does not exist or cannot be written to.
    """
    from seu_bench.utils.locks import alone_in

    folder = results / "leaderboards"
    if not results.is_dir():
        return read_leaderboards(results)  # refuses
    refuse_link(folder, "remove it; leaderboards can be made again at any time")
    paths = []
    with alone_in(folder):
        build = read_leaderboards(results, metrics)
        for board in build.boards:
            for suffix, text in ((".md", to_markdown(board)), (".csv", to_csv([board]))):
                paths.append(folder / f"{board.name}{suffix}")
                write_atomic(paths[-1], text)
    return LeaderboardBuild(build.collection, build.boards, tuple(paths))


def _boards(collection: Collection, metrics: Mapping[str, Metric]) -> list[Leaderboard]:
    groups = collection.groups()
    boards: list[Leaderboard] = []
    names: set[str] = set()
    for place in sorted(groups):
        by_data = groups[place]
        excluded = collection.excluded(place)
        for fingerprint in sorted(by_data, key=lambda key: (-len(by_data[key]), key)):
            name = _free_name(place, fingerprint, names)
            names.add(name)
            rows, repeated = _rows(by_data[fingerprint])
            lines = (*exclusions("not counted", {"a later record has the same configuration and seed": repeated}),)
            measured = {metric for row in rows for run in row.runs.values() for metric in run.metrics}
            columns = {name: metric for name, metric in metrics.items() if metric.column and name in measured}
            records = sum(row.seeds for row in rows)
            boards.append(
                Leaderboard(*place, fingerprint, name, len(by_data), records, (*lines, *excluded), rows, columns)
            )
    return boards


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
    """Rows of one leaderboard, best first, and the excluded runs."""
    chosen, repeated = configurations(records)
    labels = configuration_labels([next(iter(runs.values())) for runs in chosen])
    rows = [Row(0, label, runs) for label, runs in zip(labels, chosen, strict=True)]
    # A score is never negative, so that what was not measured comes last.
    rows.sort(key=lambda row: (-(row.mean(RANKED_BY) or 0), row.configuration))
    return tuple(replace(row, rank=rank) for rank, row in enumerate(rows, start=1)), repeated
