"""Records with plausible metrics, for tests of leaderboards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pandas

from seu_bench.metrics import mixed_score, mixed_score_above_chance
from seu_bench.results.building import read_leaderboards
from seu_bench.results.leaderboard import Leaderboard
from seu_bench.results.record import Record, write_record
from seu_bench.results.record_metrics import METRICS, SCENARIO_METRICS

#: Two data fingerprints.
DATA, OTHER_DATA = "a1" * 32, "b2" * 32
#: Core's metrics that are columns of a task-incremental leaderboard none of whose rows was tuned or has masks, in their
#: order.
COLUMNS = {
    name: metric
    for name, metric in METRICS.items()
    if metric.column
    and name not in ("tuning_passes", "mask_bits", "memory_added_bytes", "image_acc", *SCENARIO_METRICS)
}
#: What a name in a stranger's record may be.
ODD = "a|b\\|c <script>alert(1)</script> [red] *x* _y_ `z`\n| new | row |\x1b[31m"

#: Writes a record of a seed and an accuracy; keywords change its fields, ``parameters`` its size.
Put: TypeAlias = Callable[..., Record]


def leaderboards(results: Path, benchmark: str | None = None) -> list[Leaderboard]:
    """The leaderboards of a results folder, or those of one benchmark."""
    return [board for board in read_leaderboards(results).boards if benchmark in (None, board.benchmark)]


def excluded(results: Path, benchmark: str | None = None) -> list[str]:
    """Which records of a results folder enter no leaderboard and why."""
    return read_leaderboards(results).excluded(benchmark)


def frame(board: Leaderboard) -> pandas.DataFrame:
    """The table of a leaderboard; what was not measured is NaN."""
    found = pandas.DataFrame(board.table())
    numbers = [name for name in found if str(name).endswith(("_mean", "_std", "_low", "_high"))]
    return found.astype(dict.fromkeys(numbers, "float64"))


def writer(folder: Path) -> Put:
    """A function that writes records to a results folder, as run-001, run-002, ..."""
    made: list[str] = []

    def write(seed: int = 0, acc: float = 0.5, **fields: Any) -> Record:
        made.append("")
        parameters = fields.pop("parameters", 1_000_000)
        metrics = {
            "acc": acc,
            "forgetting": acc / 10,
            "params_total": parameters,
            "macs": 3 * parameters,
            "memory_bytes": 5 * parameters,
            "train_flops": int(1e12 * acc),
            "search_flops": int(1e11 * acc),
            "mixed_score": mixed_score(100 * acc, parameters),
            "mixed_score_above_chance": mixed_score_above_chance(acc, 0.1, parameters),
            "mixed_score_memory": mixed_score(100 * acc, 5 * parameters / 4),
            "learning_acc": acc + 0.05,
            "train_seconds": 100.0 * acc,
        }
        given: dict[str, Any] = {
            "run_id": f"run-{len(made):03d}",
            "status": "finished",
            "strategy": "naive",
            "benchmark": "cifar10",
            "benchmark_version": 1,
            "protocol": "quick",
            "seed": seed,
            "data_fingerprint": DATA,
            "metrics": metrics,
            "params_total": (10, parameters),
        }
        record = Record(**(given | fields))
        write_record(folder, record)
        return record

    return write
