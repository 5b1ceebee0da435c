"""From a results folder to leaderboards and their files."""

from __future__ import annotations

import gc
import hashlib
import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from seu_bench.config.streams import SCENARIOS
from seu_bench.errors import NewerRecordError, ResultsError, SeuBenchError
from seu_bench.results.code import learner_code
from seu_bench.results.labels import (
    CanonicalTexts,
    configuration_labels,
    protocol_settings,
    shared_changes,
    unequal_budgets,
    why_not_ranked,
)
from seu_bench.results.leaderboard.boards import CHOICES, Leaderboard, Row, to_csv
from seu_bench.results.leaderboard.markdown import exclusions, to_markdown
from seu_bench.results.leaderboard.ordering import ordered, size_axis
from seu_bench.results.metric import Metric
from seu_bench.results.record import RECORD_NAME, Record
from seu_bench.results.record_files import read_records
from seu_bench.results.record_metrics import METRICS, SCENARIO_METRICS, has_unequal_tasks
from seu_bench.results.reference import compare_with_reference
from seu_bench.results.reference_rows import missing_references
from seu_bench.results.scenarios import benchmark_title, other_overrides
from seu_bench.utils.files import refuse_link, write_atomic

#: Metrics that most records have no value of, or 0: a column of them is shown where one has another.
_RARE: Final = ("tuning_passes", "mask_bits")
#: Benchmark, version and protocol of a leaderboard, and the place of its scenario among all.
_Place: TypeAlias = tuple[str, int, str, int]


@dataclass(frozen=True)
class LeaderboardBuild:
    """The leaderboards of a results folder.

    Attributes:
        records: all that were read, by run id, with relative metrics and without what leaderboards do not need.
        unread: the runs that could not be read, by the reason.
        boards: all leaderboards, complete, in the order of benchmarks, versions, protocols and scenarios.
        paths: the files written.
    """

    records: Sequence[Record]
    unread: Mapping[str, Sequence[str]]
    boards: tuple[Leaderboard, ...]
    paths: tuple[Path, ...] = ()

    def excluded(self, benchmark: str | None = None, *, unranked: bool = False) -> list[str]:
        """Records that enter no leaderboard, one line for each reason; what could not be read may belong anywhere.

        Args:
            benchmark: only records of it.
            unranked: whether there are leaderboards of what is never ranked, too, which have what is finished.
        """
        records = (r for r in self.records if benchmark in (None, r.benchmark))
        return _excluded((r for r in records if not unranked or r.status != "finished"), self.unread)


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
    records, unread = collect(results, metrics)
    own = None if any(it.submitter for it in records) else results  # nobody runs something in a shared folder
    return LeaderboardBuild(records, unread, tuple(_boards(records, unread, metrics, own)))


def make_leaderboards(results: Path, metrics: Mapping[str, Metric] = METRICS) -> LeaderboardBuild:
    """Read a results folder once, and write every leaderboard of it.

    The files are ``<results>/leaderboards/<benchmark>-v<version>-<protocol>.md`` and ``.csv``, where the name of the
    benchmark says its scenario unless that is ``task`` (``split_digits-class``). One process at a time
    reads records and writes, so that the last one has seen those of all.

    Args:
        results: the folder that holds the runs.
        metrics: those known, e.g. of the plugins installed; a column is shown where a record has its metric.

    Returns:
        The leaderboards, and the excluded records.

    Raises:
        ResultsError: the folder does not exist or cannot be written to.
    """
    from seu_bench.utils.locks import folder_lock

    folder = results / "leaderboards"
    if not results.is_dir():
        return read_leaderboards(results)  # refuses
    refuse_link(folder, "remove it; leaderboards can be made again at any time")
    paths = []
    with folder_lock(folder):
        build = read_leaderboards(results, metrics)
        for board in build.boards:
            for suffix, text in ((".md", to_markdown(board)), (".csv", to_csv([board]))):
                paths.append(folder / f"{board.name}{suffix}")
                write_atomic(paths[-1], text)
    return replace(build, paths=tuple(paths))


def collect(
    results: Path, metrics: Mapping[str, Metric] = METRICS, *, details: bool = False
) -> tuple[list[Record], dict[str, list[str]]]:
    """Read a results folder: records by run id, with relative metrics; and runs that are unreadable, by the reason.

    Of a shared leaderboard's folder only runs that manifests name are read.

    Args:
        details: whether to read stages, genotypes and all else that tables do not need.
    """
    if not results.is_dir():
        raise ResultsError(
            "there is no such results folder",
            where=str(results),
            remedy="run something first, or give another folder with --results",
        )
    records: list[Record] = []
    unread: dict[str, list[str]] = defaultdict(list)
    # The search for reference cycles takes nearly half of the time of reading thousands of records, which have none.
    # Several threads may be here at once: each only ever switches on again what it saw switched on.
    collects = gc.isenabled()
    gc.disable()
    try:
        items: Iterable[Record | SeuBenchError]
        items = read_records(results, details=details)
        for item in items:
            if isinstance(item, Record):
                records.append(item)
            else:
                newer = isinstance(item, NewerRecordError)
                reason = "a later version of seu-bench wrote the record" if newer else "the record is unreadable"
                place = Path(item.where or "?")
                unread[reason].append(place.parent.name if place.name == RECORD_NAME else place.name)
        records.sort(key=lambda record: record.run_id)
        return compare_with_reference(records, metrics), unread
    finally:
        if collects:
            gc.enable()


def _excluded(records: Iterable[Record], unread: Mapping[str, Sequence[str]]) -> list[str]:
    """Which of the records are not ranked, and which could not be read, one line for each reason."""
    runs: dict[str, list[str]] = defaultdict(list)
    for record in records:
        if reason := why_not_ranked(record):
            runs[reason].append(record.run_id)
    return [*exclusions("not ranked", runs), *exclusions("not read", unread)]


def _boards(
    records: Sequence[Record], unread: Mapping[str, Sequence[str]], metrics: Mapping[str, Metric], results: Path | None
) -> Iterator[Leaderboard]:
    """The leaderboards of records; of one place, those of the data with the most records first."""
    by_place: dict[_Place, list[Record]] = defaultdict(list)
    for record in records:
        scenario = SCENARIOS.index(record.scenario)
        by_place[record.benchmark, record.benchmark_version, record.protocol, scenario].append(record)
    names: set[str] = set()
    for place in sorted(by_place):
        excluded = _excluded(by_place[place], unread)
        by_data: dict[str, list[Record]] = defaultdict(list)
        for record in by_place[place]:
            if record.data_fingerprint and why_not_ranked(record) is None:
                by_data[record.data_fingerprint].append(record)
        for fingerprint, runs in sorted(by_data.items(), key=lambda item: (-len(item[1]), item[0])):
            names.add(name := free_name(runs[0], fingerprint, names))
            board = board_of(runs, metrics, name)
            why = (*board.excluded, *excluded)
            yield replace(board, fingerprints=len(by_data), excluded=why, missing=missing_references(runs, results))


def board_of(runs: Sequence[Record], metrics: Mapping[str, Metric], name: str) -> Leaderboard:
    """Make a leaderboard of records of one benchmark, version, scenario, protocol and data fingerprint, all of which it
    counts.

    Args:
        runs: one or more.
        metrics: those known.
        name: of its files.
    """
    rows, repeated = _rows(runs)
    lines = exclusions("not counted", {"a later record has the same configuration and seed": repeated})
    values = (item for row in rows for run in row.runs.values() for item in run.metrics.items())
    measured = {metric for metric, value in values if value or metric not in _RARE}
    counted, first = sum(row.seeds for row in rows), runs[0]
    if not any(has_unequal_tasks(run) for row in rows for run in row.runs.values()):
        measured.discard("image_acc")
    measured -= {metric for metric, scenarios in SCENARIO_METRICS.items() if first.scenario not in scenarios}
    columns = {key: metric for key, metric in metrics.items() if metric.column and key in measured}
    place = first.benchmark, first.benchmark_version, first.protocol, first.data_fingerprint or "-"
    records = [row.record for row in rows]
    return Leaderboard(
        *place,
        name,
        1,
        counted,
        tuple(lines),
        rows,
        columns,
        size_axis(rows),
        first.scenario,
        changed=shared_changes(records),
        budgets=unequal_budgets(records),
    )


def free_name(record: Record, fingerprint: str, taken: set[str], protocol: str | None = None) -> str:
    """Name the leaderboard of a record: plainly; with the fingerprint's beginning, then a number, where another one is
    called so.

    Args:
        record: one of those in it.
        fingerprint: of its data.
        taken: names of others.
        protocol: in place of the record's.
    """
    plain = f"{benchmark_title(record)}-v{record.benchmark_version}-{protocol or record.protocol}"
    if len(plain) > 200:  # file systems take 255 letters
        plain = f"{plain[:180]}-{hashlib.sha256(plain.encode()).hexdigest()[:16]}"
    longer = f"{plain}-{fingerprint[:8]}"
    candidates = itertools.chain([plain, longer], (f"{longer}-{number}" for number in itertools.count(2)))
    # Names come from records, which may hold anything: no letter may leave the folder.
    return next(name for text in candidates if (name := re.sub(r"[^A-Za-z0-9._-]", "_", text)) not in taken)


def _rows(records: Sequence[Record]) -> tuple[tuple[Row, ...], list[str]]:
    """Rows of one leaderboard in their order, and the runs that do not count: of one seed the latest does."""
    text = CanonicalTexts()
    latest: dict[tuple[str, int], Record] = {}
    for record in sorted(records, key=lambda record: (record.started, record.run_id)):
        latest[text(_choice(record)), record.seed] = record
    chosen: dict[str, dict[int, Record]] = defaultdict(dict)
    for choice, seed in sorted(latest):
        chosen[choice][seed] = latest[choice, seed]
    labels = configuration_labels([next(iter(runs.values())) for runs in chosen.values()])
    rows = [Row(0, label, runs) for label, runs in zip(labels, chosen.values(), strict=True)]
    counted = set(map(id, latest.values()))
    repeated = [record.run_id for record in records if id(record) not in counted]
    return ordered(rows), repeated


def _choice(record: Record) -> list[Any]:
    """Choices of a record as comparable plain values."""
    names = [record.strategy, record.searcher, record.creator]
    options = [other_overrides(record) if part == "benchmark_overrides" else getattr(record, part) for part in CHOICES]
    # A protocol that was edited without a new version of its benchmark must not share a row with what it was.
    settings = [options, protocol_settings(record), record.precision, record.threads]
    settings.append(record.attach)
    return [names, *settings, learner_code(record), record.submitter]
