"""Families of comparisons: pairs of rows that are judged together, by the project's one verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from scripts.evidence.formatting import change, ratio
from seu_bench.results.leaderboard import Row
from seu_bench.results.record_metrics import known_metric
from seu_bench.results.statistics import PairedDifference, compare_paired

#: What the seeds say of a row beside another one.
Side: TypeAlias = Literal["above", "below", "not told"]


@dataclass(frozen=True)
class Pair:
    """Two rows of one benchmark that are compared."""

    benchmark: str
    one: str
    other: str
    ours: Row
    theirs: Row


@dataclass(frozen=True)
class Compared:
    """A pair in one metric, with the difference of the first row less the second.

    Attributes:
        difference: corrected for all comparisons of its family.
    """

    pair: Pair
    metric: str
    difference: PairedDifference

    @property
    def mean(self) -> float:
        """Mean difference over the seeds that both rows have."""
        return self.difference.mean or 0.0

    @property
    def side(self) -> Side:
        """Where the first row is, if the difference is significant."""
        if self.difference.verdict != "significant" or self.mean == 0:
            return "not told"
        return "above" if self.mean > 0 else "below"

    @property
    def words(self) -> str:
        """The difference as a reader expects it: in points, as a ratio, as a number."""
        if known_metric(self.metric).unit in ("fraction", "score"):
            return change(self.mean, self.metric)
        return ratio(self.pair.ours.mean(self.metric), self.pair.theirs.mean(self.metric))


def family(pairs: Sequence[Pair], metric: str) -> list[Compared]:
    """Compare pairs in a metric, corrected for one another; those without a common measured seed are left out."""
    measured = [(pair, pair.ours.values(metric), pair.theirs.values(metric)) for pair in pairs]
    told = [(pair, ours, theirs) for pair, ours, theirs in measured if ours.keys() & theirs.keys()]
    differences = compare_paired([(ours, theirs) for _, ours, theirs in told])
    return [Compared(pair, metric, found) for (pair, _, _), found in zip(told, differences, strict=True)]


def compare_rows(
    rows: Mapping[str, Mapping[str, Row]], pairs: Sequence[tuple[str, str]], metrics: Iterable[str]
) -> dict[str, list[Compared]]:
    """Compare pairs of names on all benchmarks that have both, each metric one family; by metric."""
    there = [
        Pair(benchmark, one, other, of[one], of[other])
        for benchmark, of in rows.items()
        for one, other in pairs
        if one in of and other in of
    ]
    return {metric: family(there, metric) for metric in metrics}
