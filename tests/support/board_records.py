"""Records with plausible metrics, for tests of leaderboards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from seu_bench.metrics import mixed_score
from seu_bench.results.record import Record, write_record

#: Two data fingerprints.
DATA, OTHER_DATA = "a1" * 32, "b2" * 32
#: What a name in a stranger's record may be.
ODD = "a|b\\|c <script>alert(1)</script> [red] *x* _y_ `z`\n| new | row |\x1b[31m"

#: Writes a record of a seed and an accuracy; keywords change its fields, ``parameters`` its size.
Put: TypeAlias = Callable[..., Record]


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
            "mixed_score": mixed_score(100 * acc, parameters),
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
