"""Scenarios in words, and the benchmark of a record by a name that says its scenario.

Runs of different scenarios are never compared: whether the task of an image is known decides what an accuracy means. A
benchmark in another scenario is another benchmark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from seu_bench.config.benchmark import PLACES
from seu_bench.config.streams import Scenario, titled

if TYPE_CHECKING:
    from seu_bench.results.record import Record

#: The key of a benchmark that chooses a scenario.
SCENARIO_KEY: Final = "stream.scenario"
#: Keys that decide no result.
_PLACES: Final = re.compile(rf"datasets\.[^.]+\.(?:{'|'.join(PLACES)})")
#: Adjectives of streams, and what is known of a test image and asked of it.
_WORDS: Final[Mapping[Scenario, tuple[str, str]]] = {
    "task": ("task-incremental", "the task of a test image is known, and the answer is one of its classes"),
    "class": (
        "class-incremental",
        "the task of a test image is not known, and the answer is a class of any task learned so far",
    ),
    "domain": (
        "domain-incremental",
        "the task of a test image is not known, and the answer is one of the classes that all tasks share",
    ),
}


def adjective(scenario: Scenario) -> str:
    """What streams of a scenario are called, e.g. ``class-incremental``."""
    return _WORDS[scenario][0]


def with_scenario(text: str, scenario: Scenario) -> str:
    """A text, and behind it what streams of the scenario are called where that is not ``task``."""
    return text if scenario == "task" else f"{text}, {adjective(scenario)}"


def definition(scenario: Scenario) -> str:
    """What streams of a scenario are called, and what it means."""
    return ": ".join(_WORDS[scenario])


def benchmark_title(record: Record) -> str:
    """The name of a record's benchmark, with the scenario where that is neither ``task`` nor in the name."""
    return titled(record.benchmark, record.scenario)


def other_overrides(record: Record) -> dict[str, Any]:
    """What a record's run changed in its benchmark besides the scenario, which the record says by itself, and besides
    where its data lie."""
    overrides = record.benchmark_overrides
    return {key: it for key, it in overrides.items() if key != SCENARIO_KEY and not _PLACES.fullmatch(key)}
