"""Cores and memory that this process may use, threads that it computes with, and what there is too little of."""

from __future__ import annotations

import ctypes
import errno
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psutil

#: Where a container's share, limit and use are found (Linux, cgroup version 2).
_CONTAINER = Path("/sys/fs/cgroup")
#: What libraries say where there is not enough of something, without a type of its own.
_SHORTAGES: Final = {
    "Storage size calculation overflowed": "memory",
    "can't allocate memory": "memory",
    "not enough memory": "memory",
    "out of memory": "memory",
    "can't start new thread": "threads",
    "Resource temporarily unavailable": "threads",
}
#: What to do where there is not enough of something.
SHORTAGE_REMEDIES: Final = {
    "memory": "choose a smaller network or batch, or fewer images, or run less at once",
    "threads": "run less at once, or raise the limit of processes and threads (ulimit -u)",
}


def usable_cores(share: Path = _CONTAINER / "cpu.max") -> int:
    """Count the cores that the process is bound to, within the container's ``share`` if there is one; at least 1."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = share.read_text(encoding="ascii").split()
        return bound if quota == "max" else max(1, min(bound, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError, ZeroDivisionError):
        return bound


@contextmanager
def computing_with(threads: int) -> Iterator[None]:
    """Have torch compute in float32 with so many threads for the length of a ``with`` block.

    How sums are shared out decides how they are rounded, and by default that would be the number of cores.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with number_format("float32", "cpu"):
            yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def number_format(precision: str, device: str) -> Iterator[None]:
    """Have torch round products on a kind of device as a run's ``precision`` says, for the length of a ``with`` block.

    Left alone, torch rounds convolutions of an accelerator to TF32, and products of matrices not. There it also takes
    deterministic algorithms, and warns of what has none; a processor's are.
    """
    import torch

    products: tuple[Any, ...] = torch.backends.cudnn, torch.backends.cuda.matmul
    memory: Any = torch.utils.deterministic
    before = [it.allow_tf32 for it in products]
    fixed = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    if device != "cpu":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS has none
        memory.fill_uninitialized_memory = False  # only what is read and never written is helped
        torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        for it in products:
            it.allow_tf32 = precision == "tf32"
        # Without autocast's cache of converted weights: many steps of the optimiser change them.
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16", cache_enabled=False):
            yield
    finally:
        if device != "cpu":  # the call imports the compiler
            torch.use_deterministic_algorithms(fixed[0], warn_only=fixed[1])
        for it, was in zip(products, before, strict=True):
            it.allow_tf32 = was


def shortage(error: BaseException) -> str | None:
    """Return what the machine has not enough of by an error, ``memory`` or ``threads``; ``None``: it says else."""
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return "memory"
    if not isinstance(error, RuntimeError | OSError | ValueError):
        return None
    return next((what for said, what in _SHORTAGES.items() if said in str(error)), None)


def free_host_memory() -> int:
    """Bytes of memory that are available, within the container's limit if there is one.

    What this process has freed is available: it is returned to the system first. So are pages of files that were read,
    which a container's use counts.
    """
    if (library := _glibc()) is not None:
        library.malloc_trim(0)
    free: int = psutil.virtual_memory().available  # type: ignore[no-untyped-call]
    try:
        limit, used = ((_CONTAINER / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return free
    if limit == "max":
        return free
    cached = 0
    with suppress(OSError):
        stated = dict(line.split() for line in (_CONTAINER / "memory.stat").read_text().splitlines())
        cached = sum(int(stated.get(name, 0)) for name in ("active_file", "inactive_file"))
    return max(0, min(free, int(limit) - int(used) + cached))


def keep_freed_memory() -> bool:
    """Have this program reuse the memory that it frees, rather than return it to the system after each step.

    It is faster, and takes more memory at the most (results/published/performance_decisions.md); results are the same.

    Returns:
        Whether it does: not without glibc, or where the user chose how memory is allocated.
    """
    library = _glibc()
    choices = ("LD_PRELOAD", "GLIBC_TUNABLES", "MALLOC_MMAP", "MALLOC_TRIM")
    if library is None or any(value and name.startswith(choices) for name, value in os.environ.items()):
        return False
    mmap_max, trim_threshold = -4, -1  # as glibc's malloc.h numbers them
    return bool(library.mallopt(mmap_max, 0) and library.mallopt(trim_threshold, -1))


def _glibc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") else None
