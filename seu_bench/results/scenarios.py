"""Scenarios in words. Runs of different scenarios are never compared: whether the task of an image is known decides
what an accuracy means.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from seu_bench.config.benchmark import PLACES
from seu_bench.config.streams import Scenario, titled

if TYPE_CHECKING:
    from seu_bench.results.record import Record

#: The key of a benchmark that chooses a scenario; and keys that decide no result.
SCENARIO_KEY: Final = "stream.scenario"
_PLACES: Final = re.compile(rf"datasets\.[^.]+\.(?:{'|'.join(PLACES)})")
_DEFINITIONS: Final[Mapping[Scenario, str]] = {
    "task": "the task of a test image is known, and the answer is one of its classes",
    "class": "the task of a test image is not known, and the answer is a class of any task learned so far",
    "domain": "the task of a test image is not known, and the answer is one of the classes that all tasks share",
}


def adjective(scenario: Scenario) -> str:
    """Return what streams of a scenario are called, e.g. ``class-incremental``."""
    return f"{scenario}-incremental"


def with_scenario(text: str, scenario: Scenario) -> str:
    """Return a text, and behind it what streams of the scenario are called where that is not ``task``."""
    return text if scenario == "task" else f"{text}, {adjective(scenario)}"


def definition(scenario: Scenario) -> str:
    """Return what streams of a scenario are called, and what it means."""
    return f"{adjective(scenario)}: {_DEFINITIONS[scenario]}"


def benchmark_title(record: Record) -> str:
    """Return the name of a record's benchmark, with the scenario where that is neither ``task`` nor in the name."""
    return titled(record.benchmark, record.scenario)


def other_overrides(record: Record) -> dict[str, Any]:
    """Return what a run changed in its benchmark besides its scenario and where its data lie."""
    overrides = record.benchmark_overrides
    return {key: it for key, it in overrides.items() if key != SCENARIO_KEY and not _PLACES.fullmatch(key)}
