"""Rows beside which a leaderboard is read and which it never ranks: what a learner that keeps nothing of earlier tasks
reaches, or one that may see all of them again. A strategy declares itself one
(:class:`~seu_bench.training.interfaces.StrategyFactory`), and its records say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from seu_bench.results.scenarios import SCENARIO_KEY

if TYPE_CHECKING:
    from seu_bench.results.record import Record

#: What the usual references are, by the names of strategy and components. Records from before there was a key
#: ``reference`` are known by these names.
REFERENCE_ROWS: Final[Mapping[str, str]] = {
    "linear": "a linear classifier per task on the pixels, nothing shared",
    "independent": "a network of its own per task, nothing shared",
    "joint": "one network trained once on all tasks together, no lifelong learner",
    "cumulative": "one network trained after each task on all images so far, which it keeps",
    "nearest_mean": "the nearest mean image of a class on the pixels, no network",
    "seu + random + all_new": "random cells, new ones for every task: the control of searching and reusing them",
}
#: A network of its own for each task.
APART: Final = REFERENCE_ROWS["independent"]
#: Those that every leaderboard should have; and every one of runs that were not told tasks.
REQUIRED: Final = ("linear", "independent", "joint", "cumulative")
WITHOUT_TASKS: Final = ("nearest_mean", "joint", "cumulative")


def reference_of(record: Record) -> str | None:
    """Say what a run is a reference of; ``None`` for one that is ranked.

    On the backbone ``linear`` tasks share no weight, whatever the strategy.
    """
    if record.reference:
        return record.reference
    name = " + ".join(part for part in (record.strategy, record.searcher, record.creator) if part)
    return REFERENCE_ROWS.get("linear" if record.options.get("backbone") == "linear" else name)


class MissingReferences(NamedTuple):
    """Which of :data:`REQUIRED` a leaderboard lacks, and the command that makes them."""

    names: tuple[str, ...]
    command: str


def missing_references(records: Iterable[Record]) -> MissingReferences | None:
    """Look for :data:`REQUIRED`, or :data:`WITHOUT_TASKS`, among records; ``None`` where none is missing.

    Args:
        records: all of one benchmark, scenario, protocol and data.
    """
    found = list(records)
    there = {reference_of(record) for record in found}
    wanted = REQUIRED if found and found[0].scenario == "task" else WITHOUT_TASKS
    missing = tuple(name for name in wanted if REFERENCE_ROWS[name] not in there)
    if not found or not missing:
        return None
    seeds = format_seeds({record.seed for record in found})
    record = found[0]
    place = f"--benchmark {record.benchmark} --protocol {record.protocol}"
    options = []
    if all(SCENARIO_KEY in each.benchmark_overrides for each in found):  # or else it is the benchmark's own
        options.append(f"-o benchmark.{SCENARIO_KEY}={record.scenario}")
    words = [f"seu-bench sweep --strategy {','.join(missing)} {place}", *options, f"--seeds {seeds}"]
    return MissingReferences(missing, " ".join(words))


def format_seeds(seeds: Iterable[int]) -> str:
    """Write seeds as a sweep reads them: ``0-2,7``."""
    runs = [[seed for _, seed in group] for _, group in groupby(enumerate(sorted(seeds)), lambda it: it[1] - it[0])]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
