"""All published sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from scripts.evidence.runs import CONTROL, EVIDENCE, SEU, Group, groups, records
from seu_bench.results.record import Record

#: Sets of equal protocol, the one that claims rest on first.
PROTOCOLS: Final = ("quick", "half_day")
#: Strategies as large as SEU; searchers and creators; the schedule of the paper, on an accelerator.
PARAMETERS, COMPONENTS, SCHEDULE = "parameters", "components", "paper"
SETS: Final = (*PROTOCOLS, PARAMETERS, COMPONENTS, SCHEDULE)


@dataclass(frozen=True, eq=False)
class Evidence:
    """The published sets.

    Attributes:
        folder: where they are.
        sets: groups by the name of their set; empty where it was not run.
    """

    folder: Path
    sets: dict[str, list[Group]]

    def records(self, name: str) -> list[Record]:
        """Finished records of a set in full: groups have no stages and genotypes."""
        return records(self.folder / name)


def read_evidence(folder: Path = EVIDENCE) -> Evidence:
    """Read all sets; beside SEU's components stand SEU itself and its control."""
    sets = {name: groups(folder / name) for name in SETS}
    sets[COMPONENTS] = [_beside(group, sets[PROTOCOLS[0]], (SEU, CONTROL)) for group in sets[COMPONENTS]]
    return Evidence(folder, sets)


def _beside(group: Group, others: Sequence[Group], wanted: Sequence[str]) -> Group:
    """A group with rows of another set of the same benchmark and protocol, unless it has them itself."""
    place = (group.benchmark, group.version, group.protocol)
    found = {
        name: other.rows[name]
        for other in others
        if (other.benchmark, other.version, other.protocol) == place
        for name in wanted
        if name in other.rows
    }
    return replace(group, rows={**found, **group.rows})
