"""Configurations compared over several benchmarks of one protocol and scenario, by their average ranks."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from seu_bench.config.options import split_by_prefix
from seu_bench.config.streams import SCENARIOS, Scenario
from seu_bench.results.labels import CanonicalTexts
from seu_bench.results.leaderboard.boards import Leaderboard, Row
from seu_bench.results.metric import Metric
from seu_bench.results.record import Record
from seu_bench.results.record_metrics import METRICS, known_metric
from seu_bench.results.scenarios import other_overrides, with_scenario
from seu_bench.results.statistics.ranks import RankComparison, compare_ranks

#: Of more benchmarks those with the most records are considered.
_MOST_BENCHMARKS: Final = 10
#: Kinds of parts of a configuration, with the prefixes of their options.
_PREFIXES: Final = {"strategies": "", "searchers": "searcher", "creators": "creator"}
#: Kind and name of a part.
_Part: TypeAlias = tuple[str, str | None]
#: Strategy, searcher, creator and submitter; and the options in which it is not as its protocol, or its tuning, has it.
_Key: TypeAlias = tuple[tuple[str, str | None, str | None, str | None], str]


@dataclass(frozen=True)
class BenchmarkComparison:
    """Configurations that were run on all of several benchmarks.

    Attributes:
        protocol, scenario: of all of them.
        metric: what they are ranked by, in its mean over seeds.
        boards: the leaderboards, one for each benchmark.
        rows: by configuration, its row on each of :attr:`boards`.
        ranks: average ranks and tests.
        excluded: configurations that are not on all benchmarks, references apart.
    """

    protocol: str
    scenario: Scenario
    metric: str
    boards: tuple[Leaderboard, ...]
    rows: Mapping[str, tuple[Row, ...]]
    ranks: RankComparison
    excluded: tuple[str, ...]

    @property
    def place(self) -> str:
        """Protocol, and the scenario where it is not ``task``, for a heading; not escaped."""
        return with_scenario(f"protocol {self.protocol}", self.scenario)

    def document(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        place = {"protocol": self.protocol, "scenario": self.scenario}
        document = {**place, "metric": self.metric, **self.ranks.document()}
        return document | {"excluded": list(self.excluded)}


def compare_over_benchmarks(
    boards: Iterable[Leaderboard], metric: str = "acc", metrics: Mapping[str, Metric] = METRICS
) -> list[BenchmarkComparison]:
    """Compare configurations over the benchmarks of each protocol and scenario.

    A configuration is a strategy with its searcher and creator, and with the options in which it differs from what the
    protocol says: those that a protocol, or its tuning, chooses may be others on each benchmark. Of the benchmarks and
    the configurations those are compared that leave no gap and give the largest table.

    Args:
        boards: the leaderboards of a results folder, of which unranked ones are left out; of one benchmark the latest
            version counts, and of that the data with the most records.
        metric: what to rank by: one of which more, or less, is better.
        metrics: those known.

    Returns:
        A comparison for each protocol and scenario that has two or more configurations on two or more benchmarks.
    """
    by_place: dict[tuple[str, Scenario], dict[str, Leaderboard]] = defaultdict(dict)
    ranked = [board for board in boards if board.unranked is None]
    for board in ranked:  # of one version the data with the most records come first
        place = board.protocol, board.scenario
        known = by_place[place].get(board.benchmark)
        if known is None or known.benchmark_version < board.benchmark_version:
            by_place[place][board.benchmark] = board
    found = (
        _compared(*place, list(by_benchmark.values()), metric, metrics) for place, by_benchmark in by_place.items()
    )
    order = SCENARIOS.index
    return sorted((each for each in found if each), key=lambda each: (each.protocol, order(each.scenario)))


def _compared(
    protocol: str, scenario: Scenario, boards: Sequence[Leaderboard], metric: str, metrics: Mapping[str, Metric]
) -> BenchmarkComparison | None:
    chosen_options: dict[_Part, set[str]] = defaultdict(set)
    for row in (row for board in boards for row in board.rows):
        for part in _parts(row.record):
            chosen_options[part].update(_layer(row.record, part))
    tables = {board: _by_key(board, chosen_options, metric) for board in boards}
    largest = max(_tables(tables), key=lambda found: (len(found[0]) * len(found[1]), len(found[0])), default=None)
    if largest is None:
        return None
    chosen, keys = largest
    names = _names(keys, tables[chosen[0]])
    rows = {names[key]: tuple(tables[board][key] for board in chosen) for key in keys}
    values = {
        board.benchmark: {name: row.mean(metric) or 0.0 for name, row in zip(rows, on, strict=True)}
        for board, on in zip(chosen, zip(*rows.values(), strict=True), strict=True)
    }
    better = known_metric(metric, metrics).higher_is_better
    everywhere = {row for on in rows.values() for row in on}
    excluded = {
        f"{row.configuration} ({board.benchmark})"
        for board in boards
        for row in board.rows
        if row.reference is None and row not in everywhere
    }
    seeds = {
        board.benchmark: {name: list(row.values(metric).values()) for name, row in zip(rows, on, strict=True)}
        for board, on in zip(chosen, zip(*rows.values(), strict=True), strict=True)
    }
    ranks = compare_ranks(values, higher_is_better=better is not False, seeds=seeds)
    return BenchmarkComparison(protocol, scenario, metric, tuple(chosen), rows, ranks, tuple(sorted(excluded)))


def _tables(tables: Mapping[Leaderboard, Mapping[_Key, Row]]) -> Iterator[tuple[list[Leaderboard], list[_Key]]]:
    """Sets of two and more benchmarks with the configurations, two and more, that all of them have."""
    most = sorted(tables, key=lambda board: -board.records)[:_MOST_BENCHMARKS]
    boards = sorted(most, key=lambda board: board.benchmark)
    for number in range(2, len(boards) + 1):
        for chosen in itertools.combinations(boards, number):
            first, *others = [tables[board] for board in chosen]
            keys = [key for key in first if all(key in other for other in others)]
            if len(keys) > 1:
                yield list(chosen), keys


def _by_key(board: Leaderboard, chosen: Mapping[_Part, Set[str]], metric: str) -> dict[_Key, Row]:
    """The rows of a leaderboard in which the metric was measured; without references, and where a key is not unique."""
    text = CanonicalTexts()
    rows = [row for row in board.rows if row.reference is None and row.mean(metric) is not None]
    keys = [_key(row.record, chosen, text) for row in rows]
    count = Counter(keys)
    return {key: row for key, row in zip(keys, rows, strict=True) if count[key] == 1}


def _key(record: Record, chosen: Mapping[_Part, Set[str]], text: CanonicalTexts) -> _Key:
    """What makes a configuration, without options that protocol or tuning chose, here or on another benchmark."""
    own: list[Any] = [other_overrides(record), record.precision, record.threads]
    for part, options in _parts(record).items():
        layer = _layer(record, part)
        own.append(
            {
                key: value
                for key, value in options.items()
                if value is not None and (value != layer[key] if key in layer else key not in chosen[part])
            }
        )
    return (record.strategy, record.searcher, record.creator, record.submitter), text(own)


def _parts(record: Record) -> dict[_Part, Mapping[str, Any]]:
    """Options of a record's strategy, searcher and creator."""
    return {
        ("strategies", record.strategy): record.options,
        ("searchers", record.searcher): record.searcher_options,
        ("creators", record.creator): record.creator_options,
    }


def _layer(record: Record, part: _Part) -> dict[str, Any]:
    """The options that a record's protocol or tuning chose for a part; records may hold anything."""
    kind, name = part
    found = record.protocol_settings.get(kind)
    layer = found.get(name) if isinstance(found, dict) else None
    tuned = split_by_prefix(record.tuned.options)[_PREFIXES[kind]] if record.tuned else {}
    return (layer if isinstance(layer, dict) else {}) | tuned


def _names(keys: Sequence[_Key], rows: Mapping[_Key, Row]) -> dict[_Key, str]:
    """A name for each: strategy, searcher and creator; with the options of its label where that is no name for one."""
    count = Counter(name for name, _ in keys)
    found = {}
    for key in keys:
        *parts, submitter = key[0]
        name = " + ".join(filter(None, parts)) + (f" by {submitter}" if submitter else "")
        found[key] = name if count[key[0]] == 1 else rows[key].configuration
    return found
