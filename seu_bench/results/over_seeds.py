"""Configurations compared over their seeds: each with the first, metric by metric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from seu_bench.results.leaderboard.boards import Leaderboard, Row
from seu_bench.results.metric import Metric
from seu_bench.results.record_metrics import METRICS
from seu_bench.results.statistics.differences import PairedDifference, compare_paired

#: What configurations are compared by, where it was measured: how well they learn, and what they take.
COMPARED_BY: Final = ("acc", "forgetting", "memory_bytes", "params_total", "train_flops", "mixed_score")


@dataclass(frozen=True)
class SeedComparison:
    """Configurations of one leaderboard, each compared with the first over the seeds that both have.

    Attributes:
        one: the row of the first.
        others: the rows of the others.
        metrics: by id, the difference of each other configuration to the first. Those of one metric are one family.
    """

    one: Row
    others: tuple[Row, ...]
    metrics: Mapping[str, tuple[PairedDifference, ...]]

    def document(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "first": self.one.configuration,
            "tunings": {row.configuration: row.tuning_documents() for row in (self.one, *self.others) if row.tunings},
            "others": [
                {
                    "configuration": other.configuration,
                    "metrics": {name: found[place].document() for name, found in self.metrics.items()},
                }
                for place, other in enumerate(self.others)
            ],
        }


def compare_over_seeds(
    boards: Iterable[Leaderboard], run_ids: Sequence[str], metrics: Mapping[str, Metric] = METRICS
) -> SeedComparison | None:
    """Compare the configurations that runs belong to, the others with the first.

    Args:
        boards: the leaderboards of a results folder.
        run_ids: of a run of each configuration, the first to compare with; two of one configuration count once.
        metrics: those known; of these :data:`COMPARED_BY` are compared, where they were measured.

    Returns:
        The comparison; ``None`` where no leaderboard has all runs, or they are all of one configuration.
    """
    for board in boards:
        rows = {run_id: row for row in board.rows for run_id in row.run_ids.values()}
        if all(run_id in rows for run_id in run_ids):
            one, *others = dict.fromkeys(rows[run_id] for run_id in run_ids)
            if not others:
                return None
            found = {
                name: tuple(compare_paired([(other.values(name), one.values(name)) for other in others]))
                for name in COMPARED_BY
                if name in metrics and one.values(name) and any(other.values(name) for other in others)
            }
            return SeedComparison(one, tuple(others), found)
    return None
