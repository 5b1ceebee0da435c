"""Runs whose memory is used again, as the command has it, and returned to the system, as glibc has it by itself.

``python -m scripts.perf.allocation {returned,reused} PROTOCOL IMAGES`` is such a run in a process of its own, for the C
library forgets nothing of what it was told; it prints a JSON object.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from statistics import median
from typing import Any, Final

from scripts.perf.comparison import Result, Size, Table
from scripts.perf.timing import ratio
from seu_bench.utils.memory import CHOICES, keep_freed_memory

WAYS: Final = ("returned", "reused")
STAGES: Final = ("training", "evaluation")
#: Images of a run by protocol: many steps of training, and the protocol's batches.
IMAGES: Final = {"quick": 512, "half_day": 512, "paper": 1280}


def measure(_: str, size: Size) -> Result:
    """Runs of each protocol, every second round the other way round."""
    images = {"smoke": 16} if size.quick else {name: size.count(number, 0) for name, number in IMAGES.items()}
    rounds = size.count(3, 1)
    rows = []
    values: dict[str, float] = {}
    for protocol, number in images.items():
        taken: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
        for round_ in range(rounds):
            for way in WAYS if round_ % 2 else WAYS[::-1]:
                taken[way].append(_in_process(way, protocol, number))
        for stage in STAGES:
            spent = {way: [each[stage] for each in taken[way]] for way in WAYS}
            gain = ratio(spent, *WAYS)
            rows.append([f"{stage}, {protocol}", *(median(spent[way]) for way in WAYS), gain])
            values[f"{protocol}_{stage}"] = gain
        held = {way: [each["held"] for each in taken[way]] for way in WAYS}
        values[f"{protocol}_memory"] = ratio(held, "reused", "returned")
    columns = ("stage", "returned, s", "reused, s", "times faster")
    settings = {"benchmark": "split_cifar100", "data": "made-up", "rounds": rounds}
    settings |= {f"images of {protocol}": number for protocol, number in images.items()}
    memory = [[name, values[f"{name}_memory"]] for name in images]
    tables = (
        Table("Seconds", columns, rows, "times faster"),
        Table("The most memory of the process", ("protocol", "reused / returned"), memory, "reused / returned"),
    )
    return Result(settings, {"least": min(values[f"{name}_training"] for name in images)}, tables)


def _in_process(way: str, protocol: str, images: int) -> dict[str, float]:
    environment = {name: value for name, value in os.environ.items() if name not in CHOICES}
    command = [sys.executable, "-m", "scripts.perf.allocation", way, protocol, str(images)]
    told = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    found: dict[str, float] = json.loads(told.stdout.splitlines()[-1])
    return found


def _run(protocol: str, images: int) -> dict[str, Any]:
    """Seconds of a task's stages, and the most memory that was held."""
    from scripts.perf.runs import timed
    from seu_bench.config.run import Request

    made = timed(
        Request(
            strategy="seu",
            searcher="random",
            creator="all_new",
            benchmark="split_cifar100",
            protocol=protocol,
            options={"epochs": 1 if protocol == "paper" else 3},
            limit=images,
            first_tasks=1,
            synthetic=True,
        )
    )
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"held": held, **{stage: made.seconds(stage) for stage in STAGES}}


if __name__ == "__main__":
    way, protocol, images = sys.argv[1:]
    if way == "reused" and not keep_freed_memory():
        sys.exit("freed memory cannot be kept here")
    print(json.dumps(_run(protocol, int(images))))
