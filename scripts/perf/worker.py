"""One comparison in this process: ``python -m scripts.perf.worker NAME FILE`` writes it to a JSON file."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scripts.perf.catalogue import comparison
from seu_bench.utils.hardware import keep_freed_memory


def measured(name: str) -> dict[str, Any]:
    """A comparison with where and how long it was measured."""
    began = time.perf_counter()
    result = comparison(name).measure()
    spent = time.perf_counter() - began
    return {"machine": describe_machine(), "seconds": round(spent, 1), **asdict(result)}


def describe_machine() -> dict[str, Any]:
    """CPU, cores and threads, versions, revision, date, and how busy the machine is at this moment."""
    # Imported late, for it brings torch: a process's children begin with its peak of memory.
    from seu_bench.engine.environment import describe_environment, processor_name

    environment = describe_environment("cpu")
    return {
        "cpu": processor_name() or environment.device,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": environment.threads,
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "torch": environment.versions.get("torch"),
        "python": environment.versions.get("python"),
        "platform": environment.platform,
        "revision": environment.git_revision,
        "date": datetime.now(UTC).date().isoformat(),
    }


if __name__ == "__main__":
    name, file = sys.argv[1:]
    keep_freed_memory()  # as the command seu-bench does
    Path(file).write_text(json.dumps(measured(name)), encoding="utf-8")
