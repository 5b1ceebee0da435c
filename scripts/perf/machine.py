"""Machine of a measurement."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

from seu_bench.engine.environment import describe_environment, processor_name


def describe_machine() -> dict[str, Any]:
    """CPU, cores and threads, versions, revision, date, and how busy the machine is at this moment."""
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
