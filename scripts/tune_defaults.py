"""Tune the strategies of the evidence by a protocol, for the tuned files that benchmarks name as its defaults.

    python scripts/tune_defaults.py quick split_cifar100,pmnist,split_fashion ewc,naive

Each strategy is tuned over its own grid, on the first three tasks of two seeds that no published run has. What was
tuned before is not made again. Trials lie in `results/tuning`; the files, in `benchmarks/tuned`, are committed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import seu_bench

ROOT = Path(__file__).resolve().parent.parent
#: In the order of their importance.
STRATEGIES = [
    "ewc",
    "naive",
    "linear",
    "independent",
    "pnn",
    "ltg",
    "seu",
    "si",
    "mas",
    "lwf",
    "rwalk",
    "replay",
    "er_ace",
    "agem",
    "gem",
    "cumulative",
    "joint",
    "gdumb",
    "cwr",
    "mir",
]
METHOD, SEEDS = "first-tasks:3", "100-101"


def tune(protocol: str, benchmarks: list[str], strategies: list[str]) -> None:
    """Tune every strategy on every benchmark, one after another; print what was chosen."""
    for strategy in strategies:
        for benchmark in benchmarks:
            result = seu_bench.tune(
                strategy=strategy,
                benchmark=benchmark,
                protocol=protocol,
                method=METHOD,
                seeds=SEEDS,
                results=ROOT / "results" / "tuning",
                output=ROOT / "benchmarks" / "tuned",
            )
            print(benchmark, strategy, result.file, flush=True)


if __name__ == "__main__":
    _, PROTOCOL, BENCHMARKS, *CHOSEN = sys.argv
    tune(PROTOCOL, BENCHMARKS.split(","), CHOSEN[0].split(",") if CHOSEN else STRATEGIES)
