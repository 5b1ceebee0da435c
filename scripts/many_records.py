"""Many records, made of real ones, to see how long and in how much memory commands read them.

    python scripts/many_records.py FOLDER --number 10000
    /usr/bin/time -v seu-bench leaderboard --results FOLDER

It varies published records: configurations by their learning rate and protocol, five seeds of each, and accuracies by
noise, from which all metrics are computed anew. What it makes was never measured: nothing of it belongs into a results
folder.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Final

from seu_bench.results.record import Record, record_path
from seu_bench.results.record_files import read_records
from seu_bench.results.record_metrics import compute_metrics
from seu_bench.utils.files import write_atomic

BASES: Final = Path(__file__).resolve().parent.parent / "results" / "published" / "evidence" / "quick"
#: Seeds of each configuration.
SEEDS: Final = 5
#: Names that the records' protocol takes in turn, and whether it is ranked: one in ten is not.
PROTOCOLS: Final = [("quick", True)] * 6 + [("paper", True)] * 3 + [("smoke", False)]


def make(folder: Path, number: int) -> None:
    """Write ``number`` records below ``folder``, the same ones in each call."""
    bases = [record for record in read_records(BASES) if isinstance(record, Record) and record.seed == 0]
    for index in range(number):
        configuration, seed = divmod(index, SEEDS)
        variant, which = divmod(configuration, len(bases))
        record = varied(bases[which], variant, seed)
        text = json.dumps(record.model_dump(mode="json"), indent=1, allow_nan=False)
        write_atomic(record_path(folder, record.run_id), text + "\n", durable=False)


def varied(base: Record, variant: int, seed: int) -> Record:
    """A record like ``base`` with other options, seed and accuracies."""
    generator = random.Random(f"{base.run_id} {variant} {seed}")
    protocol, ranked = PROTOCOLS[variant % len(PROTOCOLS)]
    # The first of each protocol has the options that it had, so that there are references at their defaults.
    nth = [PROTOCOLS[earlier % len(PROTOCOLS)] for earlier in range(variant)].count((protocol, ranked))
    level = generator.gauss(0, 0.01) - 0.005 * variant
    matrix = tuple(
        tuple(None if value is None else min(1.0, max(0.0, value + level + generator.gauss(0, 0.01))) for value in row)
        for row in base.accuracy_matrix
    )
    stages = tuple(
        stage.model_copy(update={"seconds": stage.seconds * generator.uniform(0.8, 1.2)}) for stage in base.stages
    )
    record = base.model_copy(
        update={
            "run_id": f"{base.benchmark}-{protocol}-{base.strategy}-seed{seed}-{generator.getrandbits(64):016x}",
            "options": base.options | ({"learning_rate": round(0.001 * nth, 3)} if nth else {}),
            "protocol": protocol,
            "ranked": ranked,
            "seed": seed,
            "accuracy_matrix": matrix,
            "stages": stages,
        }
    )
    return record.model_copy(update={"metrics": base.metrics | compute_metrics(record)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--number", type=int, default=10_000)
    make(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
