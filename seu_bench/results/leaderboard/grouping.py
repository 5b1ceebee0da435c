"""Records sorted: what enters which leaderboard, what is one configuration, and what is left out and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

from seu_bench.errors import NewerRecordError, ResultsError
from seu_bench.results.labels import CanonicalTexts, protocol_settings, why_not_ranked
from seu_bench.results.record import RECORD_NAME, Environment, Record
from seu_bench.results.record_files import collection_paused, read_records
from seu_bench.results.reference import compare_with_joint
from seu_bench.utils.text import printable

#: Keys of a record that tell configurations of one strategy, searcher and creator apart.
CHOICES: Final = ("options", "searcher_options", "creator_options", "benchmark_overrides")

#: What takes most of a record's memory and no leaderboard shows.
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

_UNREADABLE: Final = "the record is unreadable"
_LATER: Final = "a later version of seu-bench wrote the record"


class Place(NamedTuple):
    """What all records of a leaderboard have in common, besides their data."""

    benchmark: str
    version: int
    protocol: str

    @classmethod
    def of(cls, record: Record) -> Place:
        """The place of a record."""
        return cls(record.benchmark, record.benchmark_version, record.protocol)


@dataclass(frozen=True)
class Collection:
    """The records of one results folder.

    Attributes:
        records: in the order of run ids, compared with ``joint``.
        unread: names of the runs whose records could not be read, by the reason.
    """

    records: Sequence[Record]
    unread: Mapping[str, Sequence[str]]

    def unread_lines(self) -> list[str]:
        """What could not be read and why, one line for each reason."""
        return [line for reason in sorted(self.unread) for line in told("not read", self.unread[reason], reason)]

    def unranked_lines(self, place: Place | None = None, benchmark: str | None = None) -> list[str]:
        """Which records are not ranked and why, one line for each reason.

        Args:
            place: only those that would belong there.
            benchmark: only those of this one.
        """
        runs: dict[str, list[str]] = defaultdict(list)
        for where, reason, run_id in self._unranked:
            if place in (None, where) and benchmark in (None, where.benchmark):
                runs[reason].append(run_id)
        return [line for reason in sorted(runs) for line in told("not ranked", runs[reason], reason)]

    @cached_property
    def _unranked(self) -> list[tuple[Place, str, str]]:
        """Place, reason and run id of the records that are not ranked."""
        reasons = ((record, why_not_ranked(record)) for record in self.records)
        return [(Place.of(record), reason, record.run_id) for record, reason in reasons if reason]

    def groups(self) -> dict[Place, dict[str, list[Record]]]:
        """The records that may be ranked, by place and data fingerprint."""
        found: dict[Place, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
        for record in self.records:
            if record.may_be_ranked and record.data_fingerprint:
                found[Place.of(record)][record.data_fingerprint].append(record)
        return found


def collect(results: Path, *, details: bool = False) -> Collection:
    """Read a results folder.

    Args:
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
                reason = _LATER if isinstance(item, NewerRecordError) else _UNREADABLE
                place = Path(item.where or "?")
                unread[reason].append(place.parent.name if place.name == RECORD_NAME else place.name)
        records.sort(key=lambda record: record.run_id)
        return Collection(compare_with_joint(records), unread)


def configurations(records: Iterable[Record]) -> tuple[list[list[Record]], list[str]]:
    """Records of one place and one fingerprint by what was chosen.

    Returns:
        For each configuration its records in the order of seeds; of several with one seed only the latest. Then the
        ids of the runs that do not count because of that.
    """
    records, text = list(records), CanonicalTexts()
    latest: dict[tuple[str, int], Record] = {}
    for record in sorted(records, key=lambda record: (record.started, record.run_id)):
        latest[text(_choice(record)), record.seed] = record
    kept = {id(record) for record in latest.values()}
    repeated = [record.run_id for record in records if id(record) not in kept]
    by_choice: dict[str, list[Record]] = defaultdict(list)
    for choice, seed in sorted(latest):
        by_choice[choice].append(latest[choice, seed])
    return list(by_choice.values()), repeated


def told(what: str, run_ids: Sequence[str], reason: str) -> list[str]:
    """A line that names the runs, or none where there are none."""
    if not run_ids:
        return []
    return [f"{count(len(run_ids), 'record')} {what}: {printable(reason)} ({named(run_ids)})"]


def named(names: Sequence[str]) -> str:
    """The first names and how many more there are, on one line."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{', '.join(printable(name) for name in names[:5])}{more}"


def count(number: int, what: str) -> str:
    """``1 record``, ``2 records``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _choice(record: Record) -> list[Any]:
    """What was chosen, as plain values that are equal where the choice is."""
    names = [record.strategy, record.searcher, record.creator]
    options = [getattr(record, part) for part in CHOICES]
    # A protocol that was edited without a new version of its benchmark must not share a row with what it was.
    return [names, options, protocol_settings(record), record.precision]
