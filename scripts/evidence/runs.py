"""Published runs by set, benchmark and protocol; each configuration has a short name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from seu_bench.results.building import read_leaderboards
from seu_bench.results.leaderboard import Leaderboard, Row
from seu_bench.results.record import Record
from seu_bench.results.record_files import read_records

ROOT: Final = Path(__file__).resolve().parents[2]
EVIDENCE: Final = ROOT / "results" / "published" / "evidence"

#: The paper's searcher and its creator have one name.
PAPERS: Final = "mdl"
#: SEU with these, and its control: cells drawn at random, nothing reused.
SEU: Final = "seu"
CONTROL: Final = "seu: random, all_new"
#: The paper's other strategies, in the order of its tables.
PAPER: Final = ("naive", "ewc", "ltg", "pnn")
#: Those that SEU stands among: masks, paths and growth.
RELATIVES: Final = ("hat", "packnet", "pathnet", "den", "rcl")
#: Rows that are no competitors, in the order of tables: a classifier and a network of its own for each task, SEU's
#: control, and those that see earlier images again. What is one is said by its row.
REFERENCES: Final = ("linear", "independent", CONTROL, "joint", "cumulative")


@dataclass(frozen=True)
class Group:
    """The runs of a set on one benchmark by one protocol.

    Attributes:
        rows: configurations by their short names.
    """

    benchmark: str
    version: int
    protocol: str
    rows: Mapping[str, Row]

    @property
    def learners(self) -> dict[str, Row]:
        """The competitors."""
        return {name: row for name, row in self.rows.items() if row.reference is None}

    @property
    def references(self) -> dict[str, Row]:
        """The other rows, in the order of :data:`REFERENCES`, those that it does not name last."""
        others = self.rows.keys() - self.learners.keys()
        order = [*[name for name in REFERENCES if name in others], *sorted(others - {*REFERENCES})]
        return {name: self.rows[name] for name in order}


def groups(folder: Path) -> list[Group]:
    """Read a set by benchmark and protocol; empty where it was not run.

    Raises:
        ValueError: two configurations have one name and a seed in common: nothing is averaged over them.
    """
    if not folder.is_dir():
        return []
    boards = read_leaderboards(folder).boards
    return [Group(each.benchmark, each.benchmark_version, each.protocol, _rows(each)) for each in boards]


def records(folder: Path) -> list[Record]:
    """Read the finished records of a set in full, by run id."""
    if not folder.is_dir():
        return []
    found = [item for item in read_records(folder) if isinstance(item, Record) and item.status == "finished"]
    return sorted(found, key=lambda record: record.run_id)


def short_name(record: Record) -> str:
    """The strategy; of SEU also searcher and creator, unless they are the paper's."""
    return named(record.strategy, record.searcher or PAPERS, record.creator or PAPERS)


def named(strategy: str, searcher: str = PAPERS, creator: str = PAPERS) -> str:
    """The short name of a configuration."""
    return strategy if (searcher, creator) == (PAPERS, PAPERS) else f"{strategy}: {searcher}, {creator}"


def _rows(board: Leaderboard) -> dict[str, Row]:
    # Where a width is chosen for each seed by itself, the seeds of a strategy are in rows of their own.
    found: dict[str, Row] = {}
    for row in board.rows:
        name = short_name(row.record)
        if name in found and found[name].runs.keys() & row.runs.keys():
            both = f"{found[name].configuration} and {row.configuration}"
            raise ValueError(f"{board.title}: more than one run of a seed is called {name!r}: {both}")
        runs = {**found[name].runs, **row.runs} if name in found else row.runs
        found[name] = replace(row, runs=dict(sorted(runs.items())))
    return found
