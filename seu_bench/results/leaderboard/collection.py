"""Records of a results folder grouped by leaderboard and configuration, and those excluded with the reason."""

from __future__ import annotations

import contextlib
import gc
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

from seu_bench.errors import NewerRecordError, ResultsError
from seu_bench.results.labels import CanonicalTexts, protocol_settings, why_not_ranked
from seu_bench.results.metric import Metric
from seu_bench.results.record import RECORD_NAME, Environment, Record
from seu_bench.results.record_files import read_records
from seu_bench.results.record_metrics import METRICS
from seu_bench.results.reference import compare_with_reference
from seu_bench.utils.text import printable

#: Keys of a record that distinguish configurations of one strategy, searcher and creator.
CHOICES: Final = ("options", "searcher_options", "creator_options", "benchmark_overrides")

#: Most of a record's memory; no leaderboard shows it.
_DETAILS: Final[dict[str, Any]] = {
    "stages": (),
    "genotypes": None,
    "paths": None,
    "choices": None,
    "unit_tasks": None,
    "task_images": (),
    "environment": Environment(),
    "earlier_environments": (),
}


@contextlib.contextmanager
def collection_paused() -> Iterator[None]:
    """Suspend the search for reference cycles in a ``with`` block that makes many objects and no cycle.

    It takes nearly half of the time of reading thousands of records. Several threads may do this at once: each only
    ever switches on again what it saw switched on.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class Place(NamedTuple):
    """Benchmark, version and protocol of a leaderboard."""

    benchmark: str
    version: int
    protocol: str


@dataclass(frozen=True)
class Collection:
    """Records of a results folder, by run id, with relative metrics; and runs that are unreadable, by the reason."""

    records: Sequence[Record]
    unread: Mapping[str, Sequence[str]]

    def excluded(self, place: Place | None = None, benchmark: str | None = None) -> list[str]:
        """Records that are not ranked or could not be read, one line for each reason.

        Args:
            place: only those that would belong there; what could not be read may belong anywhere.
            benchmark: only those of this one.
        """
        runs: dict[str, list[str]] = defaultdict(list)
        for where, reason, run_id in self._unranked:
            if place in (None, where) and benchmark in (None, where.benchmark):
                runs[reason].append(run_id)
        return [*exclusions("not ranked", runs), *exclusions("not read", self.unread)]

    @cached_property
    def _unranked(self) -> list[tuple[Place, str, str]]:
        reasons = ((record, why_not_ranked(record)) for record in self.records)
        return [(_place(record), reason, record.run_id) for record, reason in reasons if reason]

    def groups(self) -> dict[Place, dict[str, list[Record]]]:
        """The records that may be ranked, by place and data fingerprint."""
        found: dict[Place, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
        for record in self.records:
            if record.may_be_ranked and record.data_fingerprint:
                found[_place(record)][record.data_fingerprint].append(record)
        return found


def collect(results: Path, metrics: Mapping[str, Metric] = METRICS, *, details: bool = False) -> Collection:
    """Read a results folder.

    Args:
        metrics: those known.
        details: whether to keep stages, genotypes and all else that leaderboards do not need.

    Raises:
        ResultsError: it does not exist.
    """
    if not results.is_dir():
        raise ResultsError(
            "there is no such results folder",
            where=str(results),
            remedy="run something first, or give another folder with --results",
        )
    records: list[Record] = []
    unread: dict[str, list[str]] = defaultdict(list)
    with collection_paused():
        for item in read_records(results):
            if isinstance(item, Record):
                records.append(item if details else item.model_copy(update=_DETAILS))
            else:
                newer = isinstance(item, NewerRecordError)
                reason = "a later version of seu-bench wrote the record" if newer else "the record is unreadable"
                place = Path(item.where or "?")
                unread[reason].append(place.parent.name if place.name == RECORD_NAME else place.name)
        records.sort(key=lambda record: record.run_id)
        return Collection(compare_with_reference(records, metrics), unread)


def configurations(records: Iterable[Record]) -> tuple[list[dict[int, Record]], list[str]]:
    """Group records of one place and one fingerprint by what was chosen.

    Returns:
        For each configuration its records by seed; of several with one seed only the latest. Then the ids of the runs
        that do not count because of that.
    """
    records, text = list(records), CanonicalTexts()
    latest: dict[tuple[str, int], Record] = {}
    for record in sorted(records, key=lambda record: (record.started, record.run_id)):
        latest[text(_choice(record)), record.seed] = record
    counted = {id(record) for record in latest.values()}
    by_choice: dict[str, dict[int, Record]] = defaultdict(dict)
    for choice, seed in sorted(latest):
        by_choice[choice][seed] = latest[choice, seed]
    return list(by_choice.values()), [record.run_id for record in records if id(record) not in counted]


def exclusions(what: str, runs: Mapping[str, Sequence[str]]) -> list[str]:
    """A line for each reason that names its runs; reasons without runs have none."""
    return [
        f"{count(len(runs[reason]), 'record')} {what}: {printable(reason)} ({named(runs[reason])})"
        for reason in sorted(runs)
        if runs[reason]
    ]


def named(names: Sequence[str]) -> str:
    """The first names and how many more there are, on one line."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{', '.join(printable(name) for name in names[:5])}{more}"


def count(number: int, what: str) -> str:
    """``1 record``, ``2 records``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _place(record: Record) -> Place:
    return Place(record.benchmark, record.benchmark_version, record.protocol)


def _choice(record: Record) -> list[Any]:
    """Choices of a record as comparable plain values."""
    names = [record.strategy, record.searcher, record.creator]
    options = [getattr(record, part) for part in CHOICES]
    # A protocol that was edited without a new version of its benchmark must not share a row with what it was.
    return [names, options, protocol_settings(record), record.precision]
