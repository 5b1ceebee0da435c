"""The contest of our searcher and creator: its rows, the cost of choosing, and how near they come to the goal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from scripts.evidence.comparing import Compared, Pair, family
from scripts.evidence.formatting import NOTHING, change, table
from scripts.evidence.runs import EVIDENCE, PAPER, SEU, named, records
from seu_bench.results.building import read_leaderboards
from seu_bench.results.leaderboard import Row
from seu_bench.results.record import Record

#: The set of records, and those of the page on the paper that stand beside it.
SET: Final = "inheritance"
BESIDE: Final = ("quick", "half_day", "components")
PROTOCOLS: Final = ("quick", "half_day")
BENCHMARKS: Final = ("split_fashion", "split_cifar100", "pmnist")
#: Names of rows: ours, and what is trivial beside it.
OURS: Final = "seu: inherit, inherit, width 0.5"
TRIVIAL: Final = "seu: random, all_new, width 0.5"
#: Ours without its copies: the first task's genotype, and units that are drawn anew.
DRAWN: Final = f"{OURS}, no copies"
#: The rows of the contest, in order.
ROWS: Final = (
    OURS, DRAWN, TRIVIAL, SEU, "seu: mdl, mdl, width 0.5", "seu: mdl, frugal", "seu: random, frugal",
    "seu: random, all_new", *PAPER, "linear", "independent",
)  # fmt: skip
#: Stages that choose, whose cost is compared.
CHOOSING: Final = ("search", "creation")
#: The goal: points of accuracy that may be lost, and shares of parameters and of the cost of choosing.
MOST_LOST, MOST_SIZE, MOST_COST = 0.005, 0.5, 0.1
#: Protocol and benchmark.
Place: TypeAlias = tuple[str, str]


@dataclass(frozen=True)
class Cost:
    """Cost of searches and creations of a run, mean over seeds: image passes, and CPU seconds if measured."""

    passes: float
    seconds: float | None


@dataclass(frozen=True)
class Goal:
    """Our row beside the paper's on one benchmark by one protocol.

    Attributes:
        accuracy: ours less theirs, over common seeds.
        size, passes, seconds: ours as a share of theirs; ``None``: not measured.
    """

    benchmark: str
    protocol: str
    seeds: int
    accuracy: float
    size: float
    passes: float
    seconds: float | None

    @property
    def is_met(self) -> bool:
        """Whether all parts are."""
        cost = max(self.passes, self.seconds or 0.0)
        return self.accuracy >= -MOST_LOST and self.size <= MOST_SIZE and cost <= MOST_COST


def name_of(record: Record) -> str:
    """The configuration of a run, its width included where it is not the protocol's."""
    if record.strategy != SEU:
        return record.strategy
    searcher, creator = record.searcher or "mdl", record.creator or "mdl"
    width = record.options.get("width", 1)
    if width == 1:
        return named(SEU, searcher, creator)
    drawn = ", no copies" if (record.creator_options or {}).get("copies") is False else ""
    return f"{SEU}: {searcher}, {creator}, width {width:g}{drawn}"


@dataclass(frozen=True)
class Contests:
    """Rows by protocol and benchmark.

    Attributes:
        rows: by name, in the order of :data:`ROWS`; those that were not run are left out.
        whole: records by run id; those of rows have no stages.
    """

    rows: Mapping[Place, Mapping[str, Row]]
    whole: Mapping[str, Record]

    def cost(self, row: Row) -> Cost | None:
        """What searches and creations cost; ``None``: the strategy has none."""
        runs = [self.whole[run.run_id] for run in row.runs.values()]
        if row.record.strategy != SEU:
            return None
        stages = [stage for run in runs for stage in run.stages if stage.name in CHOOSING]
        seconds = [stage.cpu_seconds for stage in stages if stage.cpu_seconds is not None]
        measured = sum(seconds) / len(runs) if len(seconds) == len(stages) else None
        return Cost(sum(stage.image_passes for stage in stages) / len(runs), measured)

    def goals(self) -> list[Goal]:
        """The goal's numbers, where there are both rows and a common seed."""
        found = (self._goal(place) for place in self.rows)
        return [goal for goal in found if goal is not None]

    def compared(self, metric: str) -> dict[tuple[str, str, str], Compared]:
        """Our row against every other one in a metric, those of one protocol corrected for one another; by protocol,
        benchmark and the other's name."""
        told: dict[tuple[str, str, str], Compared] = {}
        for protocol in PROTOCOLS:
            pairs = [
                Pair(benchmark, OURS, other, rows[OURS], row)
                for (which, benchmark), rows in self.rows.items()
                for other, row in rows.items()
                if which == protocol and other != OURS
            ]
            told |= {(protocol, each.pair.benchmark, each.pair.other): each for each in family(pairs, metric)}
        return told

    def _goal(self, place: Place) -> Goal | None:
        rows = self.rows[place]
        if SEU not in rows or OURS not in rows:
            return None
        ours, theirs = rows[OURS], rows[SEU]
        mine, its = ours.values("acc"), theirs.values("acc")
        common = sorted(mine.keys() & its.keys())
        one, other = self.cost(ours), self.cost(theirs)
        sizes = ours.mean("params_total"), theirs.mean("params_total")
        if not common or one is None or other is None or not other.passes or not sizes[0] or not sizes[1]:
            return None
        gained = sum(mine[seed] - its[seed] for seed in common) / len(common)
        seconds = one.seconds / other.seconds if one.seconds is not None and other.seconds else None
        protocol, benchmark = place
        return Goal(benchmark, protocol, len(common), gained, sizes[0] / sizes[1], one.passes / other.passes, seconds)


def read_contests(folder: Path = EVIDENCE) -> Contests:
    """Read the published sets; benchmarks without our row are left out."""
    found: dict[Place, dict[str, Row]] = {}
    for name in (*BESIDE, SET):
        for board in read_leaderboards(folder / name).boards if (folder / name).is_dir() else ():
            rows = found.setdefault((board.protocol, board.benchmark), {})
            for row in board.rows:
                rows.setdefault(name_of(row.record), row)
    ordered: dict[Place, Mapping[str, Row]] = {
        place: {name: found[place][name] for name in ROWS if name in found[place]}
        for protocol in PROTOCOLS
        for benchmark in BENCHMARKS
        if OURS in found.get(place := (protocol, benchmark), {})
    }
    return Contests(ordered, {record.run_id: record for name in (*BESIDE, SET) for record in records(folder / name)})


def goal_table(goals: Iterable[Goal]) -> str:
    """A line for each benchmark and protocol."""
    lines = [
        (
            f"`{goal.benchmark}`",
            f"`{goal.protocol}`",
            str(goal.seeds),
            change(goal.accuracy, "acc").removesuffix(" points"),
            f"{goal.size:.2f}",
            f"{goal.passes:.4f}",
            NOTHING if goal.seconds is None else f"{goal.seconds:.4f}",
            "yes" if goal.is_met else "no",
        )
        for goal in goals
    ]
    headings = ["benchmark", "protocol", "seeds", "accuracy (points)", "parameters (times)", "choosing: passes (times)"]
    return table([*headings, "choosing: CPU (times)", "met"], lines, texts=2)
