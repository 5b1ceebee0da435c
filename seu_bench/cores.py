"""How many processor cores this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path

#: Where a container's share is found (Linux, cgroup version 2).
_SHARE = Path("/sys/fs/cgroup/cpu.max")


def usable_cores(share: Path = _SHARE) -> int:
    """Those that the process is bound to, within the container's share if there is one; at least 1.

    Args:
        share: the file that holds it: microseconds of computing, or ``max``, in so many microseconds of time.
    """
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = share.read_text(encoding="ascii").split()
        return bound if quota == "max" else max(1, min(bound, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError, ZeroDivisionError):
        return bound
