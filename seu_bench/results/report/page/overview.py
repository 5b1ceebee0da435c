"""What a report says first: what is best on each benchmark and its cost, and all configurations over benchmarks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

from seu_bench.config.streams import SCENARIOS, Scenario
from seu_bench.results.comparison import BenchmarkComparison
from seu_bench.results.leaderboard import FRONT, MARKS, REFERENCE, SIZES, TUNED, Leaderboard, Row, Standing
from seu_bench.results.metric import Metric
from seu_bench.results.record_metrics import METRICS, known_metric
from seu_bench.results.scenarios import with_scenario
from seu_bench.results.statistics import AverageRank
from seu_bench.utils.text import printable

#: Benchmarks and configurations of a table; more are in the leaderboards.
MOST_COLUMNS, MOST_ROWS = 8, 40
#: Groups that are summed up, and names of a list in a sentence.
MOST_GROUPS, MOST_NAMES = 12, 4
ACCURACY, FORGETTING = "acc", "forgetting"
#: Protocol and scenario, within which configurations are compared over benchmarks.
_Place: TypeAlias = tuple[str, Scenario]
#: Accuracy, forgetting and size: what a cell of the table says.
_SHOWN: Final = (ACCURACY, FORGETTING)


def value(row: Row, name: str, metrics: Mapping[str, Metric] = METRICS) -> str:
    """Mean ± standard deviation of a metric in its column's unit, without the unit; ``-`` if not measured.

    A size has no deviation where that rounds to nothing. Blanks do not break lines.
    """
    metric, found = known_metric(name, metrics), row.summary(name)
    if found is None:
        return "-"
    deviation = "" if found.std is None else metric.format_cell(found.std)
    if not deviation or (name in SIZES and not deviation.strip("0.")):
        return metric.format_cell(found.mean)
    return f"{metric.format_cell(found.mean)}\u00a0±\u00a0{deviation}"


def unit_of(size: str) -> str:
    """What numbers of a size on a page are in."""
    return {"memory_bytes": "MB", "params_total": "million parameters"}[size]


def label_of(row: Row) -> str:
    """Label of a row, and the mark of a tuned one."""
    return printable(row.configuration) + (TUNED if row.tunings else "")


@dataclass(frozen=True)
class Headline:
    """A group in a few words.

    Attributes:
        best: the most accurate row that competes; ``None`` where accuracy was measured for none.
        alike: the others of which the accuracy is not significantly worse, the most accurate first.
        untested: others that have too few seeds in common with it to say.
        smallest: the least of those on the front of accuracy against size; ``None`` where that is the best.
        references: rows that compete with nobody, the most accurate first.
    """

    board: Leaderboard
    best: Row | None
    alike: tuple[Row, ...]
    untested: tuple[Row, ...]
    smallest: Row | None
    references: tuple[Row, ...]

    @property
    def name_of_size(self) -> str:
        """``memory`` or ``parameters``: what the group's front is of."""
        return SIZES[self.board.size]


def headline_of(board: Leaderboard) -> Headline:
    """Sum up a leaderboard."""
    best, others = board.beside_best(ACCURACY)
    by_accuracy = sorted(others, key=lambda row: -(row.mean(ACCURACY) or 0.0))
    front = [row for row in board.rows if row.on_front and row.mean(board.size) is not None]
    smallest = min(front, key=lambda row: row.mean(board.size) or 0.0, default=None)
    known = [row for row in board.references if row.mean(ACCURACY) is not None]
    return Headline(
        board,
        best,
        tuple(row for row in by_accuracy if others[row].verdict == "not significant"),
        tuple(row for row in by_accuracy if others[row].verdict == "too few seeds"),
        None if smallest is best else smallest,
        tuple(sorted(known, key=lambda row: -(row.mean(ACCURACY) or 0.0))),
    )


@dataclass(frozen=True)
class OverviewRow:
    """A configuration over benchmarks.

    Attributes:
        rank: its average rank, and whether it is significant; ``None``: not on all benchmarks that are ranked.
        rows: its row on each benchmark of the table; ``None``: not run there.
    """

    name: str
    is_reference: bool
    rank: AverageRank | None
    rows: tuple[Row | None, ...]


@dataclass(frozen=True)
class Overview:
    """Configurations of one protocol and scenario over its benchmarks.

    Attributes:
        place: protocol, and the scenario where it is not ``task``; not escaped.
        ranks: those of which average ranks are known; ``None``: of none.
        more: configurations and benchmarks that are left out.
    """

    place: str
    boards: tuple[Leaderboard, ...]
    ranks: BenchmarkComparison | None
    rows: tuple[OverviewRow, ...]
    more: tuple[int, int]

    @property
    def sizes(self) -> str:
        """What the size in a cell is, for a sentence."""
        found = {board.size: [b.benchmark for b in self.boards if b.size == board.size] for board in self.boards}
        named = [f"{SIZES[size]} in {unit_of(size)}" for size in found]
        if len(found) > 1:
            places = (f" ({', '.join(map(printable, names))})" for names in found.values())
            named = [name + place for name, place in zip(named, places, strict=True)]
        return " or ".join(named)

    @property
    def is_tested(self) -> bool:
        """Whether there are enough benchmarks to say which ranks are significant."""
        return self.ranks is not None and self.ranks.ranks.statistic is not None

    @cached_property
    def _standings(self) -> Mapping[Leaderboard, Mapping[Row, Standing | None]]:
        return {board: dict(zip(board.rows, board.standings(ACCURACY), strict=True)) for board in self.boards}

    def mark(self, board: Leaderboard, row: Row) -> str:
        """The leaderboard's marks of a row: of the front or of a reference, and of its accuracy."""
        standing = self._standings[board].get(row)
        place = FRONT if row.on_front else REFERENCE if row.reference is not None else ""
        return place + MARKS.get(standing, "")

    def table(self) -> list[list[str]]:
        """Headings and rows with a cell for each value, for files."""
        head = ["configuration", "reference", "average rank", "beside the best"]
        metrics = [[METRICS[name] for name in (*_SHOWN, board.size)] for board in self.boards]
        for board, shown in zip(self.boards, metrics, strict=True):
            columns = [metric.column or "" for metric in shown]
            head += [f"{board.benchmark} {column}{part}" for column in columns for part in ("", " deviation")]
            head.append(f"{board.benchmark} seeds")
        return [head, *([*self._first(row), *self._values(row)] for row in self.rows)]

    @staticmethod
    def _first(row: OverviewRow) -> list[str]:
        rank = row.rank
        verdict = "" if rank is None else "the best" if rank.verdict is None else rank.verdict
        return [row.name, "yes" if row.is_reference else "no", "" if rank is None else f"{rank.mean:.2f}", verdict]

    def _values(self, row: OverviewRow) -> list[str]:
        cells = []
        for board, own in zip(self.boards, row.rows, strict=True):
            for name in (*_SHOWN, board.size):
                found = own.summary(name) if own else None
                parts = (found.mean, found.std) if found else (None, None)
                cells += ["" if part is None else METRICS[name].format_cell(part) for part in parts]
            cells.append(str(own.seeds) if own else "")
        return cells


def overviews(boards: Sequence[Leaderboard], comparisons: Sequence[BenchmarkComparison]) -> list[Overview]:
    """Make a table for each protocol and scenario of which there are several leaderboards.

    A row has the name that comparisons over benchmarks give it, or else its label; those that are ranked come first,
    then those on more benchmarks, then the more accurate, references last.
    """
    by_place: dict[_Place, list[Leaderboard]] = defaultdict(list)
    for board in boards:
        by_place[board.protocol, board.scenario].append(board)
    compared: dict[_Place, BenchmarkComparison] = {(each.protocol, each.scenario): each for each in comparisons}
    several = [place for place, found in by_place.items() if len(found) > 1]
    several.sort(key=lambda place: (place[0], SCENARIOS.index(place[1])))
    return [_overview(place, by_place[place], compared.get(place)) for place in several]


def _overview(place: _Place, boards: Sequence[Leaderboard], ranks: BenchmarkComparison | None) -> Overview:
    protocol, scenario = place
    ranked = ranks.boards if ranks else ()
    shown = sorted(boards, key=lambda board: (board not in ranked, -board.records))[:MOST_COLUMNS]
    shown = [board for board in boards if board in shown]
    names = {row: name for name, rows in (ranks.rows.items() if ranks else ()) for row in rows}
    places: dict[tuple[str, bool], dict[int, Row]] = defaultdict(dict)
    for column, board in enumerate(shown):
        for row in board.rows:
            places[names.get(row, row.configuration), row.reference is not None].setdefault(column, row)
    by_name = {row.configuration: row for row in ranks.ranks.rows} if ranks else {}
    found = [
        OverviewRow(
            printable(name),
            is_reference,
            None if is_reference else by_name.get(name),
            tuple(own.get(column) for column in range(len(shown))),
        )
        for (name, is_reference), own in places.items()
    ]
    found.sort(key=_order)
    return Overview(
        with_scenario(f"protocol {protocol}", scenario),
        tuple(shown),
        ranks,
        tuple(found[:MOST_ROWS]),
        _more(found, boards),
    )


def _order(row: OverviewRow) -> tuple[bool, float, int, float, str]:
    means = [mean for own in row.rows if own and (mean := own.mean(ACCURACY)) is not None]
    rank = row.rank.mean if row.rank else float("inf")
    return row.is_reference, rank, -len(means), -sum(means) / max(1, len(means)), row.name


def _more(rows: Sequence[OverviewRow], boards: Sequence[Leaderboard]) -> tuple[int, int]:
    return max(0, len(rows) - MOST_ROWS), max(0, len(boards) - MOST_COLUMNS)
