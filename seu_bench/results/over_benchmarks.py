"""Configurations compared over several benchmarks of one protocol and scenario, by their average ranks."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final, TypeAlias

from seu_bench.config.streams import SCENARIOS, Scenario
from seu_bench.results.code import learner_code
from seu_bench.results.labels import CanonicalTexts, components, protocol_layer
from seu_bench.results.leaderboard.boards import Leaderboard, Row
from seu_bench.results.metric import Metric
from seu_bench.results.record import Record
from seu_bench.results.record_metrics import METRICS, known_metric
from seu_bench.results.reference_rows import format_seeds
from seu_bench.results.scenarios import other_overrides, with_scenario
from seu_bench.results.statistics.ranks import RankComparison, compare_ranks, on_common_seeds

#: Of more benchmarks those with the most records are considered.
_MOST_BENCHMARKS: Final = 10
#: Kind and name of a part.
_Part: TypeAlias = tuple[str, str | None]
#: Strategy, searcher, creator and submitter; and the options in which it is not as its protocol, or its tuning, has it.
_Key: TypeAlias = tuple[tuple[str, str | None, str | None, str | None], str]


@dataclass(frozen=True)
class BenchmarkComparison:
    """Configurations that were run on all of several benchmarks.

    Attributes:
        protocol, scenario: of all of them.
        metric: what they are ranked by, in its mean over :attr:`seeds`.
        boards: the leaderboards, one for each benchmark.
        rows: by configuration, its row on each of :attr:`boards`.
        seeds: on each of :attr:`boards`, those that all configurations have.
        means: over these seeds, by benchmark and configuration.
        ranks: average ranks and tests.
        excluded: configurations that are not on all benchmarks, or have too few seeds in common with the others there,
            references apart.
    """

    protocol: str
    scenario: Scenario
    metric: str
    boards: tuple[Leaderboard, ...]
    rows: Mapping[str, tuple[Row, ...]]
    seeds: tuple[frozenset[int], ...]
    means: Mapping[str, Mapping[str, float]]
    ranks: RankComparison
    excluded: tuple[str, ...]

    @property
    def place(self) -> str:
        """Protocol, and the scenario where it is not ``task``, for a heading; not escaped."""
        return with_scenario(f"protocol {self.protocol}", self.scenario)

    @property
    def conditions(self) -> list[str]:
        """Seeds of a benchmark where rows have others, too, and the settings of its leaderboard; not escaped."""
        found = []
        for place, (board, seeds) in enumerate(zip(self.boards, self.seeds, strict=True)):
            if any(on[place].runs.keys() != seeds for on in self.rows.values()):
                found.append(f"{board.benchmark}: means and ranks over the seeds that all have, {format_seeds(seeds)}")
            found += [f"{board.benchmark}: {text}" for text in board.settings]
        return found

    def document(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        place = {"protocol": self.protocol, "scenario": self.scenario}
        seeds = {board.benchmark: sorted(found) for board, found in zip(self.boards, self.seeds, strict=True)}
        document = {**place, "metric": self.metric, "seeds": seeds, **self.ranks.document()}
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
        for part in components(row.record):
            chosen_options[part].update(protocol_layer(row.record, *part))
    tables = {board: _by_key(board, chosen_options, metric) for board in boards}
    largest = max(_tables(tables), key=lambda found: (len(found[0]) * len(found[1]), len(found[0])), default=None)
    if largest is None:
        return None
    chosen, keys = largest
    names = _names(keys, tables[chosen[0]])
    rows = {names[key]: tuple(tables[board][key] for board in chosen) for key in keys}
    on_each = zip(*rows.values(), strict=True)
    seeds = tuple(frozenset.intersection(*(frozenset(row.runs) for row in on)) for on in on_each)
    better = known_metric(metric, metrics).higher_is_better
    everywhere = {row for on in rows.values() for row in on}
    excluded = {
        f"{row.configuration} ({board.benchmark}"
        + (f", seeds {format_seeds(row.runs)})" if board.lacks_seeds(row) else ")")
        for board in boards
        for row in board.rows
        if row.reference is None and row not in everywhere
    }
    values = {
        board.benchmark: {
            name: [on[place].values(metric)[seed] for seed in sorted(common)] for name, on in rows.items()
        }
        for place, (board, common) in enumerate(zip(chosen, seeds, strict=True))
    }
    means = {place: {name: fmean(found) for name, found in there.items()} for place, there in values.items()}
    ranks = compare_ranks(means, higher_is_better=better is not False, seeds=values)
    left_out = tuple(sorted(excluded))
    return BenchmarkComparison(protocol, scenario, metric, tuple(chosen), rows, seeds, means, ranks, left_out)


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
    """The rows of a leaderboard in which the metric was measured, with enough seeds in common; without references, and
    where a key is not unique."""
    text = CanonicalTexts()
    rows = [row for row in board.rows if row.reference is None and row.mean(metric) is not None]
    keys = [_key(row.record, chosen, text) for row in rows]
    count = Counter(keys)
    unique = {key: row for key, row in zip(keys, rows, strict=True) if count[key] == 1}
    return {key: unique[key] for key in on_common_seeds({key: row.values(metric) for key, row in unique.items()})}


def _key(record: Record, chosen: Mapping[_Part, Set[str]], text: CanonicalTexts) -> _Key:
    """What makes a configuration, without options that protocol or tuning chose, here or on another benchmark."""
    own: list[Any] = [
        *(other_overrides(record), record.precision, record.threads),
        *(record.attach, learner_code(record)),
    ]
    for part, (_, options) in components(record).items():
        layer = protocol_layer(record, *part)
        own.append(
            {
                key: value
                for key, value in options.items()
                if value is not None and (value != layer[key] if key in layer else key not in chosen[part])
            }
        )
    return (record.strategy, record.searcher, record.creator, record.submitter), text(own)


def _names(keys: Sequence[_Key], rows: Mapping[_Key, Row]) -> dict[_Key, str]:
    """A name for each: strategy, searcher and creator; with the options of its label where that is no name for one."""
    count = Counter(name for name, _ in keys)
    found = {}
    for key in keys:
        *parts, submitter = key[0]
        name = " + ".join(filter(None, parts)) + (f" by {submitter}" if submitter else "")
        found[key] = name if count[key[0]] == 1 else rows[key].configuration
    return found
