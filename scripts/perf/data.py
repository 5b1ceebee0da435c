"""Whether a comparison can use a real data set."""

from __future__ import annotations

import os

from seu_bench.errors import SeuBenchError
from seu_bench.plugin.registry import Registry


def real_or_synthetic(dataset: str) -> bool:
    """Whether images must be made up: ``SEU_BENCH_DATA`` is not set, or the data set is not there."""
    if "SEU_BENCH_DATA" not in os.environ:
        return True
    try:
        Registry().datasets.find(dataset).factory.load(None)
    except SeuBenchError:
        return True
    return False
