"""One comparison in this process: ``python -m scripts.perf.worker NAME FILE SCALE QUICK`` writes it to a JSON file."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scripts.perf.catalogue import comparison
from scripts.perf.comparison import Size
from seu_bench.utils.memory import keep_freed_memory


def measured(name: str, size: Size) -> dict[str, Any]:
    """A comparison with where and how long it was measured."""
    began = time.perf_counter()
    result = comparison(name).measure(size)
    spent = time.perf_counter() - began
    # Imported afterwards, for it brings torch: a process's children begin with its peak of memory.
    from scripts.perf.machine import describe_machine

    return {"machine": describe_machine(), "scale": size.scale, "seconds": round(spent, 1), **asdict(result)}


if __name__ == "__main__":
    name, file, scale, quick = sys.argv[1:]
    keep_freed_memory()  # as the command seu-bench does
    Path(file).write_text(json.dumps(measured(name, Size(float(scale), quick == "quick"))), encoding="utf-8")
