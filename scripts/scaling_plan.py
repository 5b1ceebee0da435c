"""Cost of the paper's whole table: jobs, operations, hours, storage; computed from ``seu-bench cost``.

    python scripts/scaling_plan.py [--seeds 5] > results/published/scaling.md

Nothing is run. Operations are those of the largest model that a strategy can grow to: a path of SEU that reuses units
costs as much as one that does not, but a smaller network may be chosen. Passes of a search are counted as those of the
network that it searches for, though its proxy has a size of its own. Hours on this machine are operations over what
``make perf`` measured for a step of that strategy; hours at one sustained TFLOP/s are arithmetic.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from seu_bench.config.run import Request
from seu_bench.engine.resolve import resolve
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record
from seu_bench.results.record_files import read_records

PUBLISHED: Final = Path(__file__).resolve().parent.parent / "results" / "published"
STRATEGIES: Final = ("naive", "ewc", "pnn", "ltg", "seu")
BENCHMARKS: Final = ("pmnist", "split_cifar10", "split_cifar100", "mixture")
#: Which measured step stands for a strategy's.
STEPS: Final = {
    "naive": "naive, training", "ewc": "naive, training", "pnn": "pnn, training of the last column",
    "ltg": "ltg, training", "seu": "seu, training",
}  # fmt: skip
#: Operations of a multiply-accumulate; passes that a training pass is worth: forward, and two products backward.
OPERATIONS: Final = 2
TRAINING: Final = 3
#: Bytes of a parameter; copies of the model that a run keeps at the most: the model, and two checkpoints with weights,
#: momentum and the best so far.
BYTES: Final = 4
COPIES: Final = 1 + 2 * 3


def row(registry: Registry, strategy: str, benchmark: str, speeds: dict[str, float]) -> dict[str, float]:
    """Compute one job: operations, hours, and bytes."""
    run = resolve(registry, Request(strategy=strategy, benchmark=benchmark, protocol="paper", synthetic=True))
    cost = run.strategy.cost(run.context(run.plan()))
    operations = OPERATIONS * sum(
        (TRAINING * stage.train + stage.evaluate) * cost.macs[stage.task] for stage in cost.stages
    )
    return {
        "operations": operations,
        "hours_here": operations / speeds[STEPS[strategy]] / 3600,
        "hours_teraflop": operations / 1e12 / 3600,
        "bytes": BYTES * COPIES * cost.params_total[-1],
        "bytes_left": BYTES * cost.params_total[-1],
    }


def measured_speeds() -> dict[str, float]:
    """Read the operations per second of a step from the published page of performance."""
    known = json.loads((PUBLISHED / "performance.json").read_text(encoding="utf-8"))["comparisons"]["flops"]
    (table,) = known["tables"]
    place = table["columns"].index("GFLOP/s")
    return {cells[0]: cells[place] * 1e9 for cells in table["rows"]}


def record_bytes(records: Sequence[Record]) -> float:
    """Mean bytes of the file of one record."""
    return statistics.mean(len(record.model_dump_json(indent=1)) for record in records)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    seeds = parser.parse_args().seeds
    registry, speeds = Registry(), measured_speeds()
    print("# Cost of the paper's whole table\n")
    print(
        f"Computed by `scripts/scaling_plan.py` for {seeds} seeds, protocol `paper`; nothing of it was run. Operations"
    )
    print("are those of the largest model that a strategy can grow to. *Here*: at the operations per second that")
    print("[performance.md](performance.md) has for a step of that strategy on two cores. *At 1 TFLOP/s*: on whatever")
    print("sustains that; divide by what yours sustains.\n")
    heads = ("benchmark", "strategy", "jobs", "PFLOP", "hours here", "hours at 1 TFLOP/s", "GB kept", "GB at the most")
    print("| " + " | ".join(heads) + " |\n| --- | --- |" + " ---: |" * (len(heads) - 2))
    total = dict.fromkeys(("operations", "hours_here", "hours_teraflop", "bytes_left", "bytes"), 0.0)
    for benchmark in BENCHMARKS:
        for strategy in STRATEGIES:
            found = {key: seeds * value for key, value in row(registry, strategy, benchmark, speeds).items()}
            total = {key: total[key] + found[key] for key in total}
            print(_line(benchmark, strategy, seeds, found))
    print(_line("**all**", "", seeds * len(STRATEGIES) * len(BENCHMARKS), total))
    records = [item for item in read_records(PUBLISHED / "sweep") if isinstance(item, Record)]
    size = record_bytes(records)
    print(f"\nA record takes {size / 1024:.0f} KiB (mean of the {len(records)} of the published sweep): 10,000")
    print(f"of them {10_000 * size / 2**20:,.0f} MiB.")


def _line(benchmark: str, strategy: str, jobs: int, found: dict[str, float]) -> str:
    numbers = (
        str(jobs),
        f"{found['operations'] / 1e15:,.1f}",
        f"{found['hours_here']:,.0f}",
        f"{found['hours_teraflop']:,.1f}",
        f"{found['bytes_left'] / 1e9:,.2f}",
        f"{found['bytes'] / 1e9:,.2f}",
    )
    return "| " + " | ".join((benchmark, strategy, *numbers)) + " |"


if __name__ == "__main__":
    main()
