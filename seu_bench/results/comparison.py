"""Comparisons: two runs task by task, configurations over their seeds, and over several benchmarks by average ranks."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, Final, TypeAlias

from seu_bench.config.options import flatten_options
from seu_bench.config.streams import SCENARIOS, Scenario
from seu_bench.errors import RequestError
from seu_bench.metrics import entry, task_forgetting
from seu_bench.results.labels import adjective, canonical, components, other_overrides, protocol_layer, with_scenario
from seu_bench.results.leaderboard import Leaderboard, Row
from seu_bench.results.metric import UNITS, Metric
from seu_bench.results.record import VARIANTS, Record, learner_code
from seu_bench.results.record_metrics import EVALUATION, METRICS, complete_matrix, in_order, known_metric, measured_rows
from seu_bench.results.reference_rows import format_seeds
from seu_bench.results.statistics import (
    PairedDifference,
    RankComparison,
    compare_paired,
    compare_ranks,
    on_common_seeds,
)

#: What configurations are compared by over seeds, where it was measured.
COMPARED_BY: Final = ("acc", "forgetting", "memory_bytes", "params_total", "train_flops", "mixed_score")
#: What two runs have in common.
_PLACE: Final = ("benchmark", "benchmark_version", "protocol", "synthetic", "limit", "data_fingerprint")
#: The same measurement of both runs, and the second's less the first's; ``None``: not measured.
Sides: TypeAlias = tuple[float | None, float | None, float | None]
#: Of :func:`difference_cells`.
HEADINGS: Final = ("difference", "95 % interval", "Hedges' g", "p (Holm)", "verdict")
MEANING: Final = (
    "Significant: paired t-test over common seeds, p < 0.05 after Holm's correction for the configurations compared. "
    "Intervals are of the mean difference, each by itself."
)


@dataclass(frozen=True)
class Comparison:
    """Two runs of one benchmark.

    ``tasks`` are in the order in which the first run learned them. ``settings`` are those that differ; ``None`` where a
    run has no such setting, or left it to the protocol.
    """

    one: Record
    other: Record
    same_order: bool
    tasks: Sequence[Mapping[str, Any]]
    metrics: Mapping[str, Sides]
    settings: Mapping[str, tuple[str | None, str | None]]

    def document(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        parts = {name: getattr(self, name) for name in ("same_order", "tasks", "metrics", "settings")}
        return {"runs": [self.one.run_id, self.other.run_id], **parts}


def compare(one: Record, other: Record, metrics: Mapping[str, Metric] = METRICS) -> Comparison:
    """Compare two runs of one benchmark; differences are those of the second to the first.

    Raises:
        RequestError: they are of different benchmarks, versions, scenarios, protocols, data or tasks; all is named.
    """
    if faults := _incomparable(one, other):
        raise RequestError(
            "these runs are not comparable: " + "; ".join(faults),
            where=f"{one.run_id} and {other.run_id}",
            remedy="compare runs of one benchmark, version, scenario, protocol and data",
        )
    mine, its = _by_task(one), _by_task(other)
    names = dict(zip(one.task_order, one.task_names, strict=False))
    tasks = [
        {"task": task, "name": names.get(task, str(task))}
        | {key: _sides(mine[task][key], its[task][key]) for key in mine[task]}
        for task in one.task_order
    ]
    known = in_order([*one.metrics, *other.metrics], metrics)
    sides = {key: _sides(one.metrics.get(key), other.metrics.get(key)) for key in known}
    sides = {key: values for key, values in sides.items() if values[:2] != (None, None)}
    ours, theirs = _flat_settings(one), _flat_settings(other)
    settings = {key: (ours.get(key), theirs.get(key)) for key in ours | theirs if ours.get(key) != theirs.get(key)}
    return Comparison(one, other, one.task_order == other.task_order, tasks, sides, settings)


def _sides(*pair: float | None) -> Sides:
    first, second = (value if value is not None and math.isfinite(value) else None for value in pair)
    return first, second, None if first is None or second is None else second - first


def _incomparable(one: Record, other: Record) -> list[str]:
    if one.scenario != other.scenario:
        both = f"one is {adjective(one.scenario)} and the other {adjective(other.scenario)}"
        return [f"{both}: accuracies answer different questions"]
    faults = [
        f"{name.replace('_', ' ')} {getattr(one, name)!r} and {getattr(other, name)!r}"[:300]
        for name in _PLACE
        if getattr(one, name) != getattr(other, name)
    ]
    if sorted(one.task_order) != sorted(other.task_order):
        faults.append(f"tasks {sorted(one.task_order)!r} and {sorted(other.task_order)!r}"[:300])
    if not faults and not one.data_fingerprint:
        faults.append("neither has a data fingerprint")
    if not faults and (not one.task_order or len(set(one.task_order)) < len(one.task_order)):
        faults.append("they do not say which tasks they learned")
    return faults


def _by_task(record: Record) -> dict[int, dict[str, float | None]]:
    matrix = complete_matrix(record)
    falls, last = task_forgetting(matrix), len(record.task_order) - 1
    # Sizes are measured when accuracies are: a run that is evaluated once has them of the last task only.
    sizes, memory = (
        dict(zip(measured_rows(record), values, strict=False)) for values in (record.params_total, record.memory_bytes)
    )
    found: dict[int, dict[str, float | None]] = {}
    for position, task in enumerate(record.task_order):
        stages = [stage.seconds for stage in record.stages if stage.task == position and stage.name != EVALUATION]
        found[task] = {
            "final": entry(matrix, last, position),
            "learned": entry(matrix, position, position),
            "forgetting": falls[position] if position < last else None,
            "parameters": sizes.get(position),
            "memory": memory.get(position),
            "seconds": math.fsum(stages) if stages else None,
        }
    return found


def _flat_settings(record: Record) -> dict[str, str]:
    document = record.model_dump(mode="json")
    del document["environment"]["threads"]  # the run's own are what decides
    named = ("strategy", "seed", *VARIANTS, "status", "task_order", "options", "environment")
    sections = {
        **{name: document[name] for name in named},
        "searcher": record.searcher_options,
        "creator": record.creator_options,
        "benchmark": other_overrides(record),
        "protocol": record.protocol_settings,
        "code": {f"{it.kind} {it.name}": str(it) for it in record.code},
        "earlier code": {f"{it.kind} {it.name}": str(it) for it in record.earlier_code},
    }
    parent = record.parent and f"{record.parent.run_id}, after {record.parent.tasks} tasks"
    found = [("searcher", record.searcher), ("creator", record.creator), ("parent", parent), *flatten_options(sections)]
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in found if value is not None}


@dataclass(frozen=True)
class SeedComparison:
    """Configurations of one leaderboard, each compared with the first over the seeds that both have."""

    one: Row
    others: tuple[Row, ...]
    metrics: Mapping[str, tuple[PairedDifference, ...]]  # by id, of each other one to the first, in one family

    def document(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        others = [
            {
                "configuration": other.configuration,
                "metrics": {name: found[place].document() for name, found in self.metrics.items()},
            }
            for place, other in enumerate(self.others)
        ]
        return {"first": self.one.configuration, "others": others}


def compare_over_seeds(
    boards: Iterable[Leaderboard], run_ids: Sequence[str], metrics: Mapping[str, Metric] = METRICS
) -> SeedComparison | None:
    """Compare the configurations that runs belong to with the first run's, by :data:`COMPARED_BY`; ``None`` where no
    leaderboard has all runs, or they are all of one configuration.
    """
    for board in boards:
        rows = {run_id: row for row in board.rows for run_id in row.run_ids.values()}
        if all(run_id in rows for run_id in run_ids):
            one, *others = dict.fromkeys(rows[run_id] for run_id in run_ids)
            found = {
                name: tuple(compare_paired([(other.values(name), one.values(name)) for other in others]))
                for name in COMPARED_BY
                if name in metrics and one.values(name) and any(other.values(name) for other in others)
            }
            return SeedComparison(one, tuple(others), found) if others else None
    return None


def difference_cells(found: PairedDifference, metric: Metric) -> tuple[str, str, str, str, str]:
    """Format a difference of a metric by :data:`HEADINGS`, in the unit of its column; ``-``: unknown.

    What is the same in every seed, such as a number of parameters, is no sample: it is told, and nothing is tested.
    """
    if found.std == 0:
        told = _format_signed(found.mean or 0.0, metric), "-", "-", "-"
        return *told, "same difference in every seed" if found.mean else "equal in every seed"
    p_holm, interval = found.p_holm, "-"
    if found.low is not None and found.high is not None:
        interval = f"{_format_signed(found.low, metric)} to {_format_signed(found.high, metric)}"
    return (
        "-" if found.mean is None else _format_signed(found.mean, metric),
        interval,
        "-" if found.hedges_g is None else f"{found.hedges_g:+.2f}",
        "-" if p_holm is None else f"{p_holm:.4f}" if p_holm >= 1e-4 else "<0.0001",
        found.verdict,
    )


def _format_signed(value: float, metric: Metric) -> str:
    text = metric.format_cell(value)
    return text if text.startswith("-") or value * UNITS[metric.unit].factor <= 0 else f"+{text}"


#: Of more benchmarks those with the most records are considered.
_MOST_BENCHMARKS: Final = 10
#: Name with submitter; and the options in which it is not as its protocol, or its tuning, has it.
_Key: TypeAlias = tuple[str, str]
#: Options that protocols or tunings choose, by the kind and name of the component.
_Chosen: TypeAlias = Mapping[tuple[str, str | None], Set[str]]


@dataclass(frozen=True)
class BenchmarkComparison:
    """Configurations that were run on all of several benchmarks."""

    protocol: str
    scenario: Scenario
    metric: str  # what they are ranked by, in its mean over the seeds that all have
    boards: tuple[Leaderboard, ...]  # one for each benchmark
    rows: Mapping[str, tuple[Row, ...]]  # by configuration, on each of the boards
    seeds: tuple[frozenset[int], ...]  # on each of the boards, those that all configurations have
    means: Mapping[str, Mapping[str, float]]  # over these seeds, by benchmark and configuration
    ranks: RankComparison
    excluded: tuple[str, ...]  # learners that are not on all of them, or have too few seeds in common with others

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
        """Return plain values, for JSON."""
        place = {"protocol": self.protocol, "scenario": self.scenario}
        seeds = {board.benchmark: sorted(found) for board, found in zip(self.boards, self.seeds, strict=True)}
        return {**place, "metric": self.metric, "seeds": seeds, **asdict(self.ranks), "excluded": self.excluded}


def compare_over_benchmarks(
    boards: Iterable[Leaderboard], metric: str = "acc", metrics: Mapping[str, Metric] = METRICS
) -> list[BenchmarkComparison]:
    """Compare configurations over the benchmarks of each protocol and scenario that has two or more of both.

    A configuration is a strategy with its searcher and creator, and with the options in which it differs from what the
    protocol says: those that a protocol, or its tuning, chooses may be others on each benchmark. Of the benchmarks and
    the configurations those are compared that leave no gap and give the largest table; of one benchmark the latest
    version counts, and of that the data with the most records.
    """
    by_place: dict[tuple[str, int], dict[str, Leaderboard]] = defaultdict(dict)
    for board in boards:  # of one version the data with the most records come first
        there = by_place[board.protocol, SCENARIOS.index(board.scenario)]
        known = there.get(board.benchmark)
        if board.unranked is None and (known is None or known.benchmark_version < board.benchmark_version):
            there[board.benchmark] = board
    found = (_compare(list(by_place[place].values()), metric, metrics) for place in sorted(by_place))
    return [each for each in found if each]


def _compare(boards: Sequence[Leaderboard], metric: str, metrics: Mapping[str, Metric]) -> BenchmarkComparison | None:
    options: dict[tuple[str, str | None], set[str]] = defaultdict(set)
    for row in (row for board in boards for row in board.rows):
        for part in components(row.record):
            options[part].update(protocol_layer(row.record, *part))
    tables = {board: _by_key(board, options, metric) for board in boards}
    largest = max(_tables(tables), key=lambda found: (len(found[0]) * len(found[1]), len(found[0])), default=None)
    if largest is None:
        return None
    chosen, keys = largest
    same_name = Counter(name for name, _ in keys)
    names = {key: key[0] if same_name[key[0]] == 1 else tables[chosen[0]][key].configuration for key in keys}
    rows = {names[key]: tuple(tables[board][key] for board in chosen) for key in keys}
    seeds = tuple(
        frozenset.intersection(*(frozenset(row.runs) for row in on)) for on in zip(*rows.values(), strict=True)
    )
    everywhere = {row for on in rows.values() for row in on}
    excluded = {
        f"{row.configuration} ({board.benchmark}"
        + (f", seeds {format_seeds(row.runs)})" if board.lacks_seeds(row) else ")")
        for board in boards
        for row in board.learners
        if row not in everywhere
    }
    means = {
        board.benchmark: {
            name: fmean([on[place].values(metric)[seed] for seed in sorted(common)]) for name, on in rows.items()
        }
        for place, (board, common) in enumerate(zip(chosen, seeds, strict=True))
    }
    ranks = compare_ranks(means, higher_is_better=known_metric(metric, metrics).higher_is_better is not False)
    place = chosen[0].protocol, chosen[0].scenario
    return BenchmarkComparison(*place, metric, tuple(chosen), rows, seeds, means, ranks, tuple(sorted(excluded)))


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


def _by_key(board: Leaderboard, chosen: _Chosen, metric: str) -> dict[_Key, Row]:
    """The learners in which the metric was measured, with enough seeds in common, where a key is unique."""
    rows = [(_key(row.record, chosen), row) for row in board.learners if row.mean(metric) is not None]
    number = Counter(key for key, _ in rows)
    unique = {key: row for key, row in rows if number[key] == 1}
    return {key: unique[key] for key in on_common_seeds({key: row.values(metric) for key, row in unique.items()})}


def _key(record: Record, chosen: _Chosen) -> _Key:
    """What makes a configuration, without options that protocol or tuning chose, here or on another benchmark."""
    own: list[Any] = [other_overrides(record), record.variant, learner_code(record)]
    for part, (_, options) in components(record).items():
        layer = protocol_layer(record, *part)
        own.append(
            {
                key: value
                for key, value in options.items()
                if value is not None and (value != layer[key] if key in layer else key not in chosen[part])
            }
        )
    return record.learner + (f" by {record.submitter}" if record.submitter else ""), canonical(own)
