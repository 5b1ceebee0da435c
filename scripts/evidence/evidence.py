"""All published sets, and the comparisons that the page makes of them, each corrected within its family."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from scripts.evidence.comparing import Compared, Pair, against, family
from scripts.evidence.runs import CONTROL, EVIDENCE, PAPERS, RELATIVES, SEU, Group, groups, kind, named, records
from seu_bench.results.record import Record

#: Sets of equal protocol, the one that claims rest on first.
PROTOCOLS: Final = ("quick", "half_day")
#: Strategies as large as SEU; searchers and creators; the schedule of the paper, on an accelerator.
PARAMETERS, COMPONENTS, SCHEDULE = "parameters", "components", "paper"
SETS: Final = (*PROTOCOLS, PARAMETERS, COMPONENTS, SCHEDULE)

#: Comparisons between others than SEU that a claim is about, by family.
EXTRA: Final = {
    "extra": (("ewc", "naive"),),
    "relatives": tuple((name, other) for name in RELATIVES for other in ("naive", "linear")),
}


@dataclass(frozen=True, eq=False)
class Evidence:
    """The published sets.

    Attributes:
        folder: where they are.
        sets: groups by the name of their set; empty where it was not run.
    """

    folder: Path
    sets: dict[str, list[Group]]
    _families: dict[tuple[str, ...], list[Compared]] = field(default_factory=dict, repr=False)

    def compared(self, name: str, metric: str) -> list[Compared]:
        """SEU against every other row, and :data:`EXTRA`, over all benchmarks of a set; components among themselves.

        A family is the comparisons with rows of one kind (:func:`~scripts.evidence.runs.kind`), those of ``EXTRA``, of
        searchers, or of creators.
        """
        key = (name, metric)
        if key not in self._families:
            families: dict[str, list[Pair]] = {}
            for group in self.sets[name]:
                for family_name, pair in _pairs(name, group):
                    families.setdefault(family_name, []).append(pair)
            self._families[key] = [found for pairs in families.values() for found in family(pairs, metric)]
        return self._families[key]

    def beside_linear(self, name: str, metric: str) -> list[Compared]:
        """Every learner against the linear row, over all benchmarks of a set: one family."""
        key = (name, metric, "linear")
        if key not in self._families:
            pairs = [
                pair for group in self.sets[name] for one in group.learners for pair in against(group, ["linear"], one)
            ]
            self._families[key] = family(pairs, metric)
        return self._families[key]

    def records(self, name: str) -> list[Record]:
        """Finished records of a set in full: groups have no stages and genotypes."""
        return records(self.folder / name)

    def group(self, name: str, benchmark: str) -> Group | None:
        """The group of a benchmark in a set."""
        return next((group for group in self.sets[name] if group.benchmark == benchmark), None)


def read_evidence(folder: Path = EVIDENCE) -> Evidence:
    """Read all sets; beside strategies of SEU's size stands SEU itself, beside its components also its control."""
    sets = {name: groups(folder / name) for name in SETS}
    for name, wanted in ((PARAMETERS, (SEU,)), (COMPONENTS, (SEU, CONTROL))):
        sets[name] = [_beside(group, sets[PROTOCOLS[0]], wanted) for group in sets[name]]
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


def _pairs(name: str, group: Group) -> Iterator[tuple[str, Pair]]:
    """Pairs of a group, each with the name of its family."""
    if name == COMPONENTS:
        yield from _component_pairs(group)
        return
    for family_name, pairs in EXTRA.items():
        for one, other in pairs:
            yield from ((family_name, pair) for pair in against(group, [other], one))
    yield from ((kind(pair.other, pair.theirs), pair) for pair in against(group, group.rows))


def _component_pairs(group: Group) -> Iterator[tuple[str, Pair]]:
    """Searchers beside the random one with the same creator, creators beside the paper's with the same searcher."""
    for name, row in group.rows.items():
        searcher, creator = row.record.searcher or PAPERS, row.record.creator or PAPERS
        if searcher != "random":
            yield from (("searchers", pair) for pair in against(group, [named(SEU, "random", creator)], name))
        if creator != PAPERS:
            yield from (("creators", pair) for pair in against(group, [named(SEU, searcher)], name))
