"""How much memory is free, and how much of it frozen features may take."""

from __future__ import annotations

from pathlib import Path

import psutil
import torch

from seu_bench.feature_table import Tier

#: Share of what is free when a task begins that its features may take, unless the user says otherwise.
SHARE = 0.5
#: Where a container's limit and use are found (Linux, cgroup version 2).
_CONTAINER = Path("/sys/fs/cgroup")


def feature_tiers(device: torch.device, budget: int | None) -> list[Tier]:
    """Where features of frozen layers are kept: on the device first, then in the host's memory.

    Args:
        budget: bytes at most, in all; ``None``: half of what is free on each.
    """
    tiers = []
    budget = None if budget is None else max(0, budget)
    if device.type == "cuda":
        free = int(SHARE * torch.cuda.mem_get_info(device)[0])
        tiers.append(Tier(device, free if budget is None else min(budget, free)))
        budget = None if budget is None else budget - tiers[0].limit
    host = int(SHARE * free_host_memory()) if budget is None else budget
    return [*tiers, Tier(torch.device("cpu"), host)]


def free_host_memory() -> int:
    """Bytes that can be had without taking them from somebody, within the container's limit if there is one."""
    free: int = psutil.virtual_memory().available  # type: ignore[no-untyped-call]
    try:
        limit, used = ((_CONTAINER / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return free
    return free if limit == "max" else max(0, min(free, int(limit) - int(used)))
