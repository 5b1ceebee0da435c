"""Rows beside which a leaderboard is read and which it never ranks: what a learner that keeps nothing of earlier tasks
reaches, or one that may see all of them again. A strategy declares itself one, and its records say so.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from seu_bench.config.commands import command
from seu_bench.utils.text import toml_value

if TYPE_CHECKING:
    from seu_bench.results.record import Record

#: What the usual references are, by the names of strategy and components. Records from before there was a key
#: ``reference`` are known by these names; later ones hold the sentence, which therefore stays as it is.
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

    On the backbone ``linear`` tasks share no weight, whatever the strategy. On features of a pretrained network linear
    heads and class means are methods, of which ``nearest_mean`` is called SimpleCIL.
    """
    if record.encoder is not None:
        return None if record.strategy in ("linear", "nearest_mean") else record.reference
    name = "linear" if record.options.get("backbone") == "linear" else record.learner
    return record.reference or REFERENCE_ROWS.get(name)


class MissingReferences(NamedTuple):
    """Which references a leaderboard lacks, and the command that makes them."""

    names: tuple[str, ...]
    command: str


def missing_references(records: Sequence[Record], results: Path | None = None) -> MissingReferences | None:
    """Look for :data:`REQUIRED`, or :data:`WITHOUT_TASKS`, among records; ``None`` where none is missing.

    Args:
        records: all of one benchmark, scenario, protocol and data.
        results: the folder that they are in, for the command; ``None``: it is not the reader's own.
    """
    there = {reference_of(record) for record in records}
    wanted: tuple[str, ...] = REQUIRED if records[0].scenario == "task" else WITHOUT_TASKS
    wanted = ("joint",) if records[0].encoder is not None else wanted
    missing = tuple(name for name in wanted if REFERENCE_ROWS[name] not in there)
    if not missing:
        return None
    # What only some have makes no difference to the data, or else they would be of other data.
    common = {
        f"benchmark.{key}": value
        for key, value in records[0].benchmark_overrides.items()
        if all(value == each.benchmark_overrides.get(key) for each in records)
    }
    text = command(
        "sweep",
        strategy=",".join(missing),
        benchmark=_benchmark(records, results),
        protocol=records[0].protocol,
        options=common,
        seeds=format_seeds({record.seed for record in records}),
        results=results,
    )
    return MissingReferences(missing, text)


def _benchmark(records: Sequence[Record], results: Path | None) -> str:
    """The benchmark as a sweep is asked for it: by name, or the path of its file, if it is still where it was."""
    files = [each.benchmark_file for each in records if each.benchmark_file is not None]
    if not files:
        return records[0].benchmark
    # Records may hold anything: unlike pathlib this answers for every text.
    there = (results / file for file in files if results and os.path.isfile(results / file))  # noqa: PTH113
    found = next(there, None)
    path = os.path.relpath(found.resolve()) if found else f"FILE_OF_{records[0].benchmark}.toml"
    return toml_value(path) if set(path) & set(",\"'") or path != path.strip() else path


def format_seeds(seeds: Iterable[int]) -> str:
    """Write seeds as a sweep reads them: ``0-2,7``."""
    runs = [[seed for _, seed in group] for _, group in groupby(enumerate(sorted(seeds)), lambda it: it[1] - it[0])]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
