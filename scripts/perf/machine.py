"""Where something was measured."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from seu_bench.environment import describe_environment


def describe_machine() -> dict[str, Any]:
    """CPU, cores and threads, versions, revision, date, and how busy the machine is at this moment."""
    environment = describe_environment("cpu")
    return {
        "cpu": _cpu_name() or environment.device,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": environment.threads,
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "torch": environment.versions.get("torch"),
        "python": environment.versions.get("python"),
        "platform": environment.platform,
        "revision": environment.git_revision,
        "date": datetime.now(UTC).date().isoformat(),
    }


def _cpu_name() -> str | None:
    """As Linux calls it; ``None`` elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)
